"""What can be set about ingest, and the only reader of RINGWAY_INGEST_* variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import msgspec

from ingest.database import sqlite_url
from ingest.parsing.choice import MEMORY_BYTES, ParserChoice
from retrieval.config import KnnEngine, OpenSearchConfig, OpenSearchKind
from retrieval.wiring import Place

PREFIX = "RINGWAY_INGEST_"


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """One field for each variable: `max_file_bytes` is RINGWAY_INGEST_MAX_FILE_BYTES."""

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    """None is SQLite in `data_dir`."""

    blobs_url: str | None = None
    """`s3://bucket/prefix`; None is a folder in `data_dir`."""

    embedder: str | None = None
    """A sentence-transformers folder or hub id; None is the bundled model."""

    reranker: str | None = None
    """A folder with a cross-encoder; None searches without one."""

    opensearch_url: str | None = field(default=None, repr=False)
    """None is the embedded index in `data_dir`. May carry `user:password@`."""

    opensearch_kind: OpenSearchKind = OpenSearchKind.CLUSTER
    opensearch_engine: KnnEngine | None = None
    """None is lucene on a cluster, faiss on Serverless."""

    opensearch_alias: str = "ringway-chunks"
    opensearch_aws_region: str | None = None
    """Signs requests with the AWS credentials of the environment."""

    opensearch_ca_certs: str | None = None
    opensearch_shards: int = 1
    opensearch_replicas: int = 0
    max_file_bytes: int = 512 << 20
    lanes: int = 32
    poll_s: float = 1.0
    lease_s: float = 30.0
    max_attempts: int = 5
    parser: ParserChoice = ParserChoice.OWN
    """`docling` reads PDF and Word files by their layout; it comes with the extra `layout`."""

    parse_memory_bytes: int | None = None
    """Address space of one parser; None is 2 GiB, with docling 16 GiB."""

    parse_cpu_s: int = 120
    parse_wall_s: float = 180.0
    parse_max_pages: int = 10_000
    parse_max_chars: int = 64_000_000
    chunk_chars: int = 1_000
    parent_chars: int = 2_500
    inline_embedded: int = 64
    inline_cache_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 0 if each.name == "opensearch_replicas" else 1e-9
            if isinstance(value, int | float) and value < least:
                raise ValueError(f"{each.name} must be positive, not {value}")

    @property
    def sql_url(self) -> str:
        return self.database_url or sqlite_url(self.data_dir / "metadata.db")

    @property
    def blobs(self) -> str | Path:
        return self.blobs_url or self.data_dir / "blobs"

    @property
    def parser_bytes(self) -> int:
        return self.parse_memory_bytes or MEMORY_BYTES[self.parser]

    @property
    def index_dir(self) -> Path:
        return self.data_dir / "index"

    @property
    def index_place(self) -> Place:
        """The folder, or the OpenSearch when one is named."""
        if self.opensearch_url is None:
            return self.index_dir
        is_cluster = self.opensearch_kind is OpenSearchKind.CLUSTER
        return OpenSearchConfig(
            url=self.opensearch_url,
            kind=self.opensearch_kind,
            engine=self.opensearch_engine or (KnnEngine.LUCENE if is_cluster else KnnEngine.FAISS),
            alias=self.opensearch_alias,
            aws_region=self.opensearch_aws_region,
            ca_certs=self.opensearch_ca_certs,
            shards=self.opensearch_shards,
            replicas=self.opensearch_replicas,
        )


def settings_from(environ: Mapping[str, str], *, data_dir: Path | None = None) -> IngestSettings:
    """`data_dir` comes before the environment's. Raises ValueError for unknown or bad values."""
    names = {each.name for each in fields(IngestSettings)}
    values: dict[str, str | Path] = {}
    for variable, raw in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in names or variable != PREFIX + name.upper():
            raise ValueError(f"unknown setting {variable}")
        values[name] = raw
    if data_dir is not None:
        values["data_dir"] = data_dir
    if "data_dir" not in values:
        raise ValueError(f"{PREFIX}DATA_DIR is not set")
    try:
        return msgspec.convert(values, IngestSettings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise ValueError(f"bad setting {PREFIX}*: {error}") from error


def _path(kind: type, value: object) -> Path:
    assert kind is Path, kind
    return Path(str(value))
