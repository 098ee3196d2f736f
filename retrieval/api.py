"""What the rest of Ringway may know of retrieval: values, protocols and errors.

Query in, passages out. Knows nothing of uploads, HTTP or language models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

Attribute = str | float | bool
"""What a filter can compare; an int is a float here, a bool is not."""

LIBRARY = ""
"""The collection of every uploaded file; other collections are vector stores, by their id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A run of characters [start, stop) of one document's stored text.

    Small chunks are searched; `parent_start`/`parent_stop` bound the larger run that is read.
    `id` is a digest of (collection, document, generation, start, stop): writing a chunk twice
    changes nothing. `attributes` are the document's, in this collection.
    """

    id: str
    document_id: str
    generation: str
    start: int
    stop: int
    parent_start: int
    parent_stop: int
    text: str
    heading: str = ""
    """Title and heading path, put before the text for search only; never part of a citation."""
    collection: str = LIBRARY
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


class Comparator(StrEnum):
    EQ = "eq"
    NE = "ne"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    NIN = "nin"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One attribute against `value` (a tuple for IN and NIN).

    A missing attribute, and one of another type, satisfies NE and NIN only.
    """

    key: str
    comparator: Comparator
    value: Attribute | tuple[Attribute, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    filters: tuple["Filter", ...]


Filter = Comparison | AllOf | AnyOf


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    chunk: Chunk
    vector: Sequence[float]


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk and one side's raw score (BM25, or cosine similarity in [-1, 1]).

    A store that has none gives NaN and its order counts. `vector` is the chunk's own, unit
    length, or empty when the store keeps it back: fusion is a little better with it.
    """

    chunk: Chunk
    score: float
    vector: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Both sides of a hybrid search, each best first, scores raw; fusion happens elsewhere."""

    lexical: Sequence[Hit]
    vector: Sequence[Hit]
    num_searched: int = 0
    """Chunks in scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuery:
    """`terms` is analysed query text (see `retrieval.analyzer`).

    The scope is one collection, in it `document_ids` (None: all of them), and of those what
    `filter` lets through. The store applies all three before it ranks.
    """

    terms: str
    vector: Sequence[float]
    document_ids: Sequence[str] | None
    collection: str = LIBRARY
    filter: Filter | None = None
    num_candidates: int = 100


class Store(Protocol):
    """An index of chunks. One contract suite runs on every implementation."""

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        """Insert, or replace by chunk id. Searchable when it returns.

        Raises SearchUnavailable, after which the same write can be repeated, or WriteRejected.
        """
        ...

    async def search(self, query: StoreQuery) -> Candidates:
        """Never returns a chunk outside the query's scope. Raises SearchUnavailable."""
        ...

    async def delete(
        self, document_id: str, *, collection: str = LIBRARY, keep_generation: str | None = None
    ) -> None:
        """Remove a document's chunks from a collection, but those of `keep_generation`.

        Not found by any search that starts after it returned. Idempotent. Raises
        SearchUnavailable.
        """
        ...

    async def count(
        self, document_id: str, generation: str, *, collection: str = LIBRARY
    ) -> int: ...

    async def aclose(self) -> None: ...


class Embedder(Protocol):
    @property
    def identity(self) -> str:
        """Name and digest of the weights; an index remembers it and refuses another."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def window_tokens(self) -> int:
        """What the model reads at once, special tokens included; longer texts are read in parts."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Unit-length float vectors, in order. Empty input gives an empty result."""
        ...


class Reranker(Protocol):
    async def scores(self, query: str, texts: Sequence[str]) -> Sequence[float] | None:
        """How well each text answers the query, in [0, 1], in order; None when it cannot read
        the query. May be cancelled at any time."""
        ...


class TextSource(Protocol):
    async def text(self, document_id: str) -> str | None:
        """The document's stored text, which spans count in; None when it is gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """`deadline_s` is a duration in seconds for the whole search."""

    query: str
    document_ids: Sequence[str] | None
    """None: every document of the collection."""
    collection: str = LIBRARY
    filter: Filter | None = None
    top_k: int = 8
    deadline_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Characters [start, stop) of a document's stored text, to be read by a model.

    Passages of one result do not overlap; neighbours are joined. `score` is fused, in [0, 1].
    [focus_start, focus_stop) is where it answers best: the part to keep when not all of the
    passage can be read.
    """

    document_id: str
    start: int
    stop: int
    text: str
    score: float
    focus_start: int
    focus_stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Passages best first. `evidence` in [0, 1]: how sure the search is that they answer."""

    passages: Sequence[Passage]
    evidence: float
    num_searched: int
    """Chunks in scope."""
    seconds: float


class Searcher(Protocol):
    async def search(self, request: SearchRequest) -> SearchResult:
        """Raises SearchUnavailable (store down, deadline passed) or QueryRejected (empty query)."""
        ...


class RetrievalError(Exception):
    """Base of all that retrieval raises on purpose."""


class IndexMismatch(RetrievalError):
    def __init__(self, *, found: str, expected: str) -> None:
        super().__init__(
            f"the index was built by {found}; the configured embedder is {expected}."
            " Configure the old one, or run: ringway index migrate"
        )
        self.found = found
        self.expected = expected


class SearchUnavailable(RetrievalError):
    """The store did not answer, or not in time."""


class WriteRejected(RetrievalError):
    """The store will never take this chunk; the others of the same write may be there."""

    def __init__(self, *, chunk_id: str, reason: str) -> None:
        super().__init__(f"the index refuses chunk {chunk_id}: {reason}")
        self.chunk_id = chunk_id
        self.reason = reason


class QueryRejected(RetrievalError):
    """The query holds nothing to search for."""


def check_query(query: str) -> None:
    """Raises QueryRejected when there is no letter or digit to search for."""
    if not any(char.isalnum() for char in query):
        raise QueryRejected("the query is empty")
