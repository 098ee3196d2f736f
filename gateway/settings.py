"""The gateway's settings, and the only reader of RINGWAY_* names for it; builds nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import SecretStr

from gateway.upstreams.config import Upstreams, load_upstreams

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


TRACES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Where traces go; OpenTelemetry's SDK reads these and its other names by itself."""
OUTAGES = ("open", "closed")
LOG_FORMATS = ("json", "text")


def _user_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("ringway"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`engine` and `ingest` are the URLs of a gang's face and of the worker's; `data_dir`,
    `database_url` and `blobs_url` are the worker's too: None means inside `data_dir`. `policy`
    None means the shipped policy. `redis_url` names where limits are counted together with other
    gateways; while it is away, `limits_on_outage` lets each count alone (`open`) or refuse limited
    keys (`closed`). With `upstreams`, those are served instead of `engine`."""

    host: str = "127.0.0.1"
    port: int = 8080
    engine: str = "http://127.0.0.1:8081"
    ingest: str = "http://127.0.0.1:8082"
    data_dir: Path = field(default_factory=_user_data_dir)
    database_url: str | None = None
    blobs_url: str | None = None
    policy: Path | None = None
    upstreams: Upstreams | None = None
    api_keys: tuple[SecretStr, ...] = field(default=())
    admin_key: SecretStr | None = None
    redis_url: SecretStr | None = None
    limits_on_outage: str = "open"
    log_format: str = "json"
    is_traced: bool = False
    max_body_bytes: int = 64 * 2**20
    max_upload_bytes: int = 512 * 2**20
    keep_alive_s: float = 10.0
    drain_s: float = 30.0
    response_days: int = 30

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be between 0 and 65535, not {self.port}")
        if self.max_body_bytes < 1024 or self.max_upload_bytes < 1024:
            raise ValueError("max_body_bytes and max_upload_bytes must be at least 1024")
        for name, known in (("limits_on_outage", OUTAGES), ("log_format", LOG_FORMATS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}")
        if self.response_days < 1:
            raise ValueError("response_days must be at least 1")
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
        if "upstreams" in values:
            values["upstreams"] = load_upstreams(values["upstreams"], environ)
        values["is_traced"] = any(environ.get(name) for name in TRACES)
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


def _key(text: str) -> SecretStr:
    if not text.strip():
        raise ValueError
    return SecretStr(text.strip())


READERS: Mapping[str, Callable[[str], object]] = {
    "host": str,
    "port": int,
    "engine": str,
    "ingest": str,
    "data_dir": Path,
    "database_url": str,
    "blobs_url": str,
    "policy": Path,
    "upstreams": Path,
    "api_keys": _keys,
    "admin_key": _key,
    "redis_url": SecretStr,
    "limits_on_outage": str,
    "log_format": str,
    "max_body_bytes": int,
    "max_upload_bytes": int,
    "keep_alive_s": float,
    "drain_s": float,
    "response_days": int,
}
