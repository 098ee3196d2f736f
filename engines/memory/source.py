"""Finds the config.json that a model's name means, without its weights; counts nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.api import ModelMissing
from engines.models.catalog import HUB_ID, resolve_model


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    config: Mapping[str, object]


def find_config(spec: str | None) -> Source:
    """A folder, a config.json, a GGUF file (converted first) or a hub id, of which only the
    config.json is downloaded; None is the bundled model. Raises ModelMissing."""
    path = Path(spec).expanduser() if spec is not None else None
    if path is not None and path.suffix == ".json":
        named = path.resolve().parent.name if path.name == "config.json" else path.stem
        return Source(named.lower(), _read(path))
    if spec is not None and path is not None and not path.exists() and HUB_ID.fullmatch(spec):
        return Source(spec.rpartition("/")[2].lower(), _read(_from_hub(spec)))
    model = resolve_model(spec)
    return Source(model.name, _read(model.folder / "config.json"))


def _from_hub(hub_id: str) -> Path:
    # Imported here: it costs 0.3 s that no other source of models needs.
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(hub_id, "config.json"))
    except LocalEntryNotFoundError as error:
        raise ModelMissing(
            f"there is no folder {hub_id}, and the hub cannot be reached for its config.json"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise ModelMissing(f"{hub_id}'s config.json cannot be downloaded: {error}") from error


def _read(path: Path) -> Mapping[str, object]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelMissing(f"there is no readable file {path}") from error
    except ValueError as error:
        raise ModelMissing(f"{path} is not valid JSON") from error
    if not isinstance(value, dict):
        raise ModelMissing(f"{path} holds no JSON object")
    return value
