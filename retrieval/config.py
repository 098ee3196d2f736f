"""Retrieval's settings, their defaults and the figures they were chosen by; reads nothing."""

from dataclasses import dataclass, field
from enum import StrEnum


class EmbedderDtype(StrEnum):
    """AUTO is int8 where processor and model allow it (see `retrieval.embedding.precision`), else
    bfloat16 on processors with instructions for it, else float32.

    The dtype is no part of an embedder's identity: all fill and search one index. Cosines to
    float32 vectors of the same text are .9999 for bfloat16 and .998 or more for int8, which is
    proved at start; an index would have to be rebuilt whenever it moves to another processor.
    """

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderConfig:
    """`model` is a sentence-transformers folder or hub id; None is the bundled MiniLM."""

    model: str | None = None
    dtype: EmbedderDtype = EmbedderDtype.AUTO
    batch_tokens: int = 1024
    """Padded tokens in one forward pass: bounds memory, and how long a query waits for ingest."""

    window_tokens: int | None = None
    """Tokens per window, special tokens included; None is all the model reads."""

    lanes: int | None = None
    """Forward passes at a time, each on one core; None is one for every core."""

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise ValueError(f"batch_tokens must be positive, not {self.batch_tokens}")
        if self.lanes is not None and self.lanes < 1:
            raise ValueError(f"lanes must be positive, not {self.lanes}")
        if self.window_tokens is not None and self.window_tokens < 8:
            raise ValueError(f"window_tokens must be at least 8, not {self.window_tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """How an embedded index is kept."""

    scan_index_min_rows: int = 1_000
    """Chunks from which vectors are also kept apart from their texts, for an exact scan."""

    ann_min_rows: int = 200_000
    """Chunks from which vectors get an approximate index: up to here a full scan of 384 float32
    reads at most 300 MB, about 0.1 s from the page cache, and is exact."""

    optimize_share: float = 0.02
    """Rows outside the full-text index that make it fold them in, as a share of those inside.
    Such rows are found at once, but scored by the index's older statistics: with half of them
    outside codebase recall@10 falls by .004, and 400 of 10,000 cost a search 15 ms. A share keeps
    folding linear in the total: at 2 % it takes about 0.4 ms a chunk."""

    optimize_commits: int = 32
    """Commits after which fragments are compacted whatever their size."""

    copied_bytes: int = 128 << 20
    """Up to this size (about 28,000 chunks) searches read what they found from a copy of the table
    in memory, which takes about as much: from disk that costs 10 ms of processor time, as much as
    ranking 10,000 chunks does."""

    def __post_init__(self) -> None:
        if min(self.scan_index_min_rows, self.ann_min_rows, self.optimize_commits) < 1:
            raise ValueError("row and commit counts must be positive")
        if self.copied_bytes < 0:
            raise ValueError(f"copied_bytes must not be negative, not {self.copied_bytes}")
        if not 0 <= self.optimize_share <= 1:
            raise ValueError(f"optimize_share must be in [0, 1], not {self.optimize_share}")


class OpenSearchKind(StrEnum):
    """CLUSTER is self-hosted or Amazon's managed service; SERVERLESS takes no ids of ours, cannot
    refresh, and shows writes late."""

    CLUSTER = "cluster"
    SERVERLESS = "serverless"


class KnnEngine(StrEnum):
    """FAISS needs native libraries, which Amazon's services and the usual images have."""

    LUCENE = "lucene"
    FAISS = "faiss"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearchConfig:
    """Where the index is and how it is kept. With `aws_region` requests are signed (SigV4)."""

    url: str = field(repr=False)
    """May carry `user:password@`."""

    kind: OpenSearchKind = OpenSearchKind.CLUSTER
    engine: KnnEngine = KnnEngine.LUCENE
    alias: str = "ringway-chunks"
    aws_region: str | None = None
    ca_certs: str | None = None
    """A file of certificates to trust besides the system's."""

    shards: int = 1
    """More than one makes BM25 scores depend on the shard; one holds tens of gigabytes."""

    replicas: int = 0
    timeout_s: float = 30.0
    bulk_bytes: int = 8 << 20
    """Of 5 to 15 MB that OpenSearch advises; Amazon's small nodes refuse more than 10 MiB."""

    max_attempts: int = 5
    """Of one bulk item that OpenSearch was too busy for (429, 503)."""

    visible_within_s: float = 60.0
    """How long a write to Serverless may stay unseen before it counts as failed."""

    fetch_vectors: bool = True
    """Fusion is a little better with them; they are 2 KB a hit."""

    def __post_init__(self) -> None:
        sizes = (self.shards, self.bulk_bytes, self.max_attempts, self.visible_within_s)
        if min(*sizes, self.timeout_s) <= 0 or self.replicas < 0:
            raise ValueError("OpenSearch's sizes and times must be positive")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("OpenSearch's URL must begin with http:// or https://")
        if self.kind is OpenSearchKind.SERVERLESS and self.engine is not KnnEngine.FAISS:
            raise ValueError("OpenSearch Serverless has only the k-NN engine faiss")

    @property
    def has_own_nodes(self) -> bool:
        """Whether shards, refreshes and write blocks are ours to set."""
        return self.kind is OpenSearchKind.CLUSTER


class FusionMethod(StrEnum):
    Z_SCORE = "z_score"
    MIN_MAX = "min_max"
    RRF = "rrf"


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionConfig:
    """One setting for every kind of text, chosen on the four judged sets of `tests/bench`.

    LanceDB and bundled MiniLM in bfloat16: Cranfield nDCG@10 .448 and recall@100 .812, XQuAD-en
    R@1 .957, codebase recall@10 .893, chunking char-recall@5 .943. Weights of .55 to .62 stay
    within .009 of these. Without feedback Cranfield loses .009 and .016, code .013, and chunking
    gains .002. The sets chose the setting, so expect a little less on other texts.
    """

    method: FusionMethod = FusionMethod.Z_SCORE
    vector_weight: float = 0.62
    window_chars: int = 1_100
    """What MiniLM reads at once (256 tokens). Longer chunks' vectors are averages of windows and
    weigh less, by the cube of the ratio."""

    feedback_chunks: int = 2
    """Pseudo-relevance feedback: the query moves towards the mean vector of this many results
    and the same candidates are scored again; no second search. 0 is off."""

    feedback_weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.vector_weight <= 1:
            raise ValueError(f"vector_weight must be in [0, 1], not {self.vector_weight}")
        if self.window_chars < 1:
            raise ValueError(f"window_chars must be positive, not {self.window_chars}")
        if self.feedback_chunks < 0 or self.feedback_weight < 0:
            raise ValueError("feedback_chunks and feedback_weight must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageConfig:
    """How fused chunks become passages; all sizes are characters."""

    max_overlap: float = 0.3
    """A chunk that shares more than this part of itself with better ones adds nothing new."""

    join_gap_chars: int = 2
    """Neighbours this close are one passage (a paragraph break lies between them)."""

    max_passage_chars: int = 5_000
    """Joining stops here: two parents. A longer passage would be cut again before it is read."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_overlap <= 1:
            raise ValueError(f"max_overlap must be in [0, 1], not {self.max_overlap}")
        if self.join_gap_chars < 0 or self.max_passage_chars < 1:
            raise ValueError("join_gap_chars must not be negative, max_passage_chars not below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    num_candidates: int = 150
    """Per side. Fixed, because normalised scores depend on it."""

    num_reranked: int = 24
    """Best chunks that a reranker, where there is one, reads again: about 1 s on two cores with a
    6-layer MiniLM."""

    rerank_share: float = 0.6
    """The part of the time left that reranking may take; later the fused order stands."""

    fusion: FusionConfig = field(default_factory=FusionConfig)
    passages: PassageConfig = field(default_factory=PassageConfig)

    def __post_init__(self) -> None:
        if min(self.num_candidates, self.num_reranked) < 1:
            raise ValueError("num_candidates and num_reranked must be positive")
        if not 0 < self.rerank_share < 1:
            raise ValueError(f"rerank_share must be in (0, 1), not {self.rerank_share}")
