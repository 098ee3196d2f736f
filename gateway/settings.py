"""The gateway's settings, and the only reader of RINGWAY_* names for it; builds nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import SecretStr

PREFIX = "RINGWAY_"
OTHERS = (
    "RINGWAY_ENGINE_",
    "RINGWAY_INGEST_",
    "RINGWAY_EVENTS_",
    "RINGWAY_TEST_",
    "RINGWAY_BENCH_",
    "RINGWAY_BASE_URL",
)
"""Names, or beginnings of names, that others read and check."""


def _user_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("ringway"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`engine` and `ingest` are the URLs of a gang's face and of the worker's; `data_dir`,
    `database_url` and `blobs_url` are the worker's too: None means inside `data_dir`. `policy`
    None means the shipped policy."""

    host: str = "127.0.0.1"
    port: int = 8080
    engine: str = "http://127.0.0.1:8081"
    ingest: str = "http://127.0.0.1:8082"
    data_dir: Path = field(default_factory=_user_data_dir)
    database_url: str | None = None
    blobs_url: str | None = None
    policy: Path | None = None
    api_keys: tuple[SecretStr, ...] = field(default=())
    max_body_bytes: int = 64 * 2**20
    max_upload_bytes: int = 512 * 2**20
    keep_alive_s: float = 10.0
    drain_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be between 0 and 65535, not {self.port}")
        if self.max_body_bytes < 1024 or self.max_upload_bytes < 1024:
            raise ValueError("max_body_bytes and max_upload_bytes must be at least 1024")
        for name in ("engine", "ingest"):
            if not getattr(self, name).startswith(("http://", "https://")):
                raise ValueError(f"{name} must be an http:// or https:// URL")
        if not 0 < self.keep_alive_s <= 60 or self.drain_s < 0:
            raise ValueError("keep_alive_s must be in (0, 60] and drain_s not negative")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "GatewaySettings":
        """Raises ValueError, with a sentence for people, for unknown names and bad values."""
        values: dict[str, Any] = {}
        for name, text in environ.items():
            if not name.startswith(PREFIX) or name.startswith(OTHERS):
                continue
            key = name.removeprefix(PREFIX).lower()
            if key not in READERS:
                known = ", ".join(PREFIX + one.upper() for one in READERS)
                raise ValueError(f"unknown setting {name}; known are {known}")
            values[key] = _read(name, text, READERS[key])
        return cls(**values)


def _read(name: str, text: str, reader: Callable[[str], object]) -> object:
    try:
        return reader(text)
    except ValueError:
        raise ValueError(f"{name} cannot be read as {reader.__name__.strip('_')}") from None


def _keys(text: str) -> tuple[SecretStr, ...]:
    keys = tuple(SecretStr(key.strip()) for key in text.split(",") if key.strip())
    if text and not keys:
        raise ValueError
    return keys


READERS: Mapping[str, Callable[[str], object]] = {
    "host": str,
    "port": int,
    "engine": str,
    "ingest": str,
    "data_dir": Path,
    "database_url": str,
    "blobs_url": str,
    "policy": Path,
    "api_keys": _keys,
    "max_body_bytes": int,
    "max_upload_bytes": int,
    "keep_alive_s": float,
    "drain_s": float,
}
