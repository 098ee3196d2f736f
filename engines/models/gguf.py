"""Keeps converted GGUF files in the user's cache; the conversion itself is another process."""

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engines.api import ModelMissing

logger = logging.getLogger(__name__)

FORMAT = 1
"""Raised when `convert` writes something else for the same file; old folders are then left."""

MEBIBYTE = 1 << 20
CONVERT_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufSource:
    """A GGUF file and the digest that names its converted folder.

    A pinned digest is the SHA-256 of the file and is verified before it is converted.
    """

    path: Path
    name: str
    digest: str
    is_pinned: bool = False

    @classmethod
    def of_file(cls, path: Path) -> "GgufSource":
        """Digest of the size, the head and the tail: hashing tens of GB at every start would take
        longer than loading them, and no two models share the tail of their last tensor."""
        digest = hashlib.sha256(str(path.stat().st_size).encode())
        with path.open("rb") as file:
            digest.update(file.read(MEBIBYTE))
            file.seek(max(0, path.stat().st_size - MEBIBYTE))
            digest.update(file.read(MEBIBYTE))
        name = re.sub(r"[^a-z0-9.-]+", "-", path.stem.lower())
        return cls(path=path, name=name, digest=digest.hexdigest())


def models_cache() -> Path:
    return Path(platformdirs.user_cache_dir("ringway")) / "models"


Convert = Callable[[Path, Path], None]


def converted_folder(
    source: GgufSource, cache: Path | None = None, convert: Convert | None = None
) -> Path:
    """The safetensors folder for a GGUF file, made now if there is none.

    A folder appears under its name only when it is whole, and two processes that want the same
    one convert it once. Raises ModelMissing.
    """
    cache = models_cache() if cache is None else cache
    target = cache / f"{source.name}-{source.digest[:12]}-f{FORMAT}"
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_suffix(".lock")):
        if not target.is_dir():
            if source.is_pinned:
                _verify(source)
            _fill(target, source, convert or convert_apart)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock dies with its holder, so a killed converter blocks nobody."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _verify(source: GgufSource) -> None:
    with source.path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.digest:
        raise ModelMissing(
            f"{source.path} is damaged: its SHA-256 is {found}, expected {source.digest}"
        )


def _fill(target: Path, source: GgufSource, convert: Convert) -> None:
    for leftover in target.parent.glob(f"{target.name}.part-*"):
        shutil.rmtree(leftover)
    logger.info("converting model", extra={"model": source.name})
    part = Path(tempfile.mkdtemp(prefix=f"{target.name}.part-", dir=target.parent))
    try:
        convert(source.path, part)
        part.chmod(0o755)
        os.rename(part, target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def convert_apart(source: Path, target: Path) -> None:
    """Convert in another process, so that this one never imports torch. Raises ModelMissing."""
    ended = subprocess.run(
        [sys.executable, "-m", "engines.models.convert", str(source), str(target)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CONVERT_TIMEOUT_S,
        check=False,
    )
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelMissing(f"{source} cannot be converted: {last}")
