"""Bodies of the vector store requests as OpenAI defines them, with its bounds and defaults."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field, model_validator

from gateway.api import UnsupportedParameter
from gateway.long_json import ObjectReader
from gateway.openai.parse import decode_object, validated
from gateway.openai.vector_stores_filters import FilterBody, Scalar, to_filter
from gateway.openai.wire import Metadata, Wire
from ingest.stores_api import (
    MAX_BATCH_FILES,
    MAX_CHUNK_TOKENS,
    MAX_RESULTS,
    MAX_STORE_FILES,
    MIN_CHUNK_TOKENS,
    Chunking,
    NewStoreFile,
    NewVectorStore,
    StoreChanges,
    StoreSearch,
)

MAX_QUERIES = 16
DEFAULT_RESULTS = 10

Key = Annotated[str, Field(max_length=64)]
Attributes = Annotated[
    dict[Key, Annotated[str, Field(max_length=512)] | bool | int | float], Field(max_length=16)
]
FileId = Annotated[str, Field(min_length=1, max_length=64)]
Body = TypeVar("Body", bound=Wire)


class AutoChunking(Wire):
    type: Literal["auto"]


class StaticSizes(Wire):
    max_chunk_size_tokens: int = Field(ge=MIN_CHUNK_TOKENS, le=MAX_CHUNK_TOKENS)
    chunk_overlap_tokens: int = Field(ge=0)


class StaticChunking(Wire):
    type: Literal["static"]
    static: StaticSizes

    @model_validator(mode="after")
    def _overlap_fits(self) -> "StaticChunking":
        most = self.static.max_chunk_size_tokens // 2
        if self.static.chunk_overlap_tokens > most:
            raise ValueError(
                f"chunk_overlap_tokens must be at most half of max_chunk_size_tokens, {most}"
            )
        return self


ChunkingBody = Annotated[AutoChunking | StaticChunking, Field(discriminator="type")]


class StoreExpiry(Wire):
    anchor: Literal["last_active_at"]
    days: int = Field(ge=1, le=365)


class CreateStore(Wire):
    name: str | None = Field(default=None, max_length=512)
    description: str | None = Field(default=None, max_length=4096)
    file_ids: list[FileId] | None = Field(default=None, max_length=MAX_STORE_FILES)
    metadata: Metadata | None = None
    expires_after: StoreExpiry | None = None
    chunking_strategy: ChunkingBody | None = None

    def value(self) -> NewVectorStore:
        chunking = chunking_of(self.chunking_strategy)
        return NewVectorStore(
            name=self.name or "",
            description=self.description,
            metadata=self.metadata or {},
            expires_after_days=self.expires_after.days if self.expires_after else None,
            files=[NewStoreFile(file_id=one, chunking=chunking) for one in self.file_ids or ()],
        )


class UpdateStore(Wire):
    """A null `expires_after` ends the expiry; other nulls leave things as they are."""

    name: str | None = Field(default=None, max_length=512)
    metadata: Metadata | None = None
    expires_after: StoreExpiry | None = None

    def value(self) -> StoreChanges:
        days = self.expires_after.days if self.expires_after else 0
        return StoreChanges(
            name=self.name,
            metadata=self.metadata,
            expires_after_days=days if "expires_after" in self.model_fields_set else None,
        )


class CreateStoreFile(Wire):
    file_id: FileId
    attributes: Attributes | None = None
    chunking_strategy: ChunkingBody | None = None

    def value(self) -> NewStoreFile:
        return NewStoreFile(
            file_id=self.file_id,
            attributes=self.attributes or {},
            chunking=chunking_of(self.chunking_strategy),
        )


class UpdateStoreFile(Wire):
    attributes: Attributes | None

    def value(self) -> dict[str, Scalar]:
        return self.attributes or {}


class CreateBatch(Wire):
    file_ids: list[FileId] | None = Field(default=None, min_length=1, max_length=MAX_BATCH_FILES)
    files: list[CreateStoreFile] | None = Field(
        default=None, min_length=1, max_length=MAX_BATCH_FILES
    )
    attributes: Attributes | None = None
    chunking_strategy: ChunkingBody | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "CreateBatch":
        if (self.file_ids is None) == (self.files is None):
            raise ValueError("file_ids|or 'files' must be given, and not both")
        if self.files is not None:
            for name in ("attributes", "chunking_strategy"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}|goes into each of 'files' when 'files' is given")
        return self

    def value(self) -> Sequence[NewStoreFile]:
        if self.files is not None:
            return [each.value() for each in self.files]
        chunking, attributes = chunking_of(self.chunking_strategy), self.attributes or {}
        return [
            NewStoreFile(file_id=one, attributes=attributes, chunking=chunking)
            for one in self.file_ids or ()
        ]


class RankingOptions(Wire):
    """There is one ranking, so every ranker names it; `none` turns off what is not there."""

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = None


class SearchStore(Wire):
    query: (
        Annotated[str, Field(min_length=1)]
        | Annotated[
            list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=MAX_QUERIES)
        ]
    )
    filters: FilterBody | None = None
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None

    def value(self, deadline_s: float) -> StoreSearch:
        """Raises InvalidRequest or UnsupportedParameter."""
        if self.rewrite_query:
            raise UnsupportedParameter(
                "rewrite_query", detail="queries are searched as they are sent; leave it out"
            )
        ranking = self.ranking_options or RankingOptions()
        return StoreSearch(
            queries=[self.query] if isinstance(self.query, str) else self.query,
            filter=None if self.filters is None else to_filter(self.filters),
            top_k=self.max_num_results or DEFAULT_RESULTS,
            score_threshold=ranking.score_threshold or 0.0,
            deadline_s=deadline_s,
        )


def chunking_of(body: AutoChunking | StaticChunking | None) -> Chunking:
    if not isinstance(body, StaticChunking):
        return Chunking()
    return Chunking(
        max_tokens=body.static.max_chunk_size_tokens,
        overlap_tokens=body.static.chunk_overlap_tokens,
    )


def parse_body(raw: bytes | ObjectReader, kind: type[Body]) -> Body:
    """Raises InvalidRequest, naming the first thing that is wrong."""
    return validated(decode_object(raw), kind)
