"""How an engine is set up: frozen values with their checks; reads no environment."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalConfig:
    """Sizes of hierarchical attention, in tokens. `top_k` chunks are attended exactly: they are
    read again, together with anchor and question, by full attention."""

    # A small sample: right answers of SmolLM2-135M (float32, greedy) about planted facts in
    # `ringway synth` case files; the questions of one file share its text. Re-read tokens in [].
    #
    #                               chunk 256                      chunk 512
    #                    k=2 [600]  k=4 [1100]  k=8 [2100]   k=2 [1100]  k=4 [2000]
    #     6K, 2 files       1/6        3/6         6/6           3/6         5/6
    #    24K, 1 file         -         4/4         4/4           2/4         1/4
    #
    # (At 6K no blank line stood between a chunk and the question; at 24K one did, and without it
    # chunk 256 fell to 0/4 and 2/4.) The right chunk was among the first three of 94 at 24K with
    # the blank line. Which layers choose, and how well: `engines.local.hierarchical.voters`.
    # With the present choice the right chunk is among the first few, and each chunk more is one
    # more that a small model may quote from: one fact among 16K, 32K and 64K tokens, bfloat16,
    # 4 samples each, was told 4/4, 4/4 and 3/4 times with k=4, 3/4, 3/4 and 2/4 with k=8; with k=4
    # its chunk was always chosen.
    # Reading up to the last of them only, two ranks of one core read 1,813 tokens/s of a 16K
    # prompt and 2,695 of a 64K one in bfloat16, what is read again included; `full` reads 839 of
    # 1K and 500 of 4K.
    chunk_tokens: int = 256
    anchor_tokens: int = 64
    top_k: int = 4
    overlap: float = 0.125
    """How much of what stands before a chunk is read with it, as a share of `chunk_tokens`."""
    voting_layers: tuple[int, ...] = ()
    """The layers whose attention chooses; () means those of the table in
    `engines.local.hierarchical.voters`, or a share of the model's depth. No layer above them is
    computed for chunks, and only their keys are kept."""
    least_recall: float = 0.0
    """More chunks are read again, up to `most_k`, while the chosen cover less than this share of
    the question's attention. Off by default: the average over heads thins out with the length of
    the prompt and says little about whether a fact was found (SmolLM2, k=8: 0.39 at 8K, 0.21 at
    16K, 0.11 at 32K, 0.06 at 64K, 0.01 at 250K)."""
    most_k: int = 12
    max_context_tokens: int = 16_777_216
    """The longest prompt and answer; a rank keeps 4 bytes per token, and of each of its own chunks
    4 bytes per voting layer, head and row of the question (SmolLM2: at most 14 kB)."""

    def __post_init__(self) -> None:
        if self.chunk_tokens < 4 * self.anchor_tokens:
            raise ValueError(
                f"chunk_tokens ({self.chunk_tokens}) must be at least 4 x anchor_tokens "
                f"({self.anchor_tokens})"
            )
        if self.anchor_tokens < 1 or self.top_k < 1:
            raise ValueError("anchor_tokens and top_k must be at least 1")
        if not 0.0 <= self.overlap < 1.0:
            raise ValueError("overlap must be at least 0 and less than 1")
        if list(self.voting_layers) != sorted(set(self.voting_layers)):
            raise ValueError("voting_layers must ascend")
        if not 0.0 <= self.least_recall <= 1.0 or self.most_k < self.top_k:
            raise ValueError("least_recall must lie in [0, 1], and most_k be at least top_k")

    @property
    def overlap_tokens(self) -> int:
        return int(self.chunk_tokens * self.overlap)

    @property
    def longest_read(self) -> int:
        """The most tokens that are read for one chunk."""
        return self.chunk_tokens + self.overlap_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsConfig:
    """Where the keys of finished chunks are kept on each host, and how many bytes of them.

    They outlive a rank, and serve later questions about the same text under the same cache key.
    `folder` and `ram_folder` are made up by the supervisor for as long as it lives; the latter
    lies on a file system in memory. A host's ranks share the budgets evenly.
    """

    folder: Path | None = None
    ram_folder: Path | None = None
    ram_bytes: int = 512 << 20
    disk_bytes: int = 8 << 30

    def __post_init__(self) -> None:
        if self.ram_bytes < 0 or self.disk_bytes < 0:
            raise ValueError("ram_bytes and disk_bytes must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """One gang: the model it serves and the ranks that hold it.

    `model_dir` is a Hugging Face folder (safetensors). `kv_budget_bytes` bounds the KV of all
    sequences over all ranks; None means what memory allows.
    """

    model_dir: Path
    model_name: str
    ranks: int = 2
    tensor_parallel: int = 1
    """Ranks that share the heads of each layer; the ring has ranks / tensor_parallel places."""
    threads_per_rank: int = 1
    device: str = "cpu"
    """Where ranks compute: "cpu", or "cuda" with a GPU for each of them."""
    dtype: str = "float32"
    prefill_chunk_tokens: int = 512
    max_running: int = 8
    max_queued: int = 64
    kv_budget_bytes: int | None = None
    step_timeout_s: float = 60.0
    max_deaths: int = 3
    """Gangs that may die in a row under one running request before it is given up."""
    hierarchical: HierarchicalConfig = field(default_factory=HierarchicalConfig)
    segments: SegmentsConfig = field(default_factory=SegmentsConfig)

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.threads_per_rank < 1:
            raise ValueError("ranks and threads_per_rank must be at least 1")
        if self.max_deaths < 1 or self.step_timeout_s <= 0:
            raise ValueError("max_deaths must be at least 1 and step_timeout_s above 0")
        if self.max_running < 1 or self.max_queued < 0:
            raise ValueError("max_running must be at least 1 and max_queued not negative")
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda, not {self.device}")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be float32 or bfloat16, not {self.dtype}")
        if self.tensor_parallel < 1 or self.ranks % self.tensor_parallel:
            raise ValueError(
                f"ranks ({self.ranks}) must be a multiple of tensor_parallel "
                f"({self.tensor_parallel})"
            )
        if self.prefill_chunk_tokens < 2 * self.ring_size:
            raise ValueError(f"prefill_chunk_tokens must be at least {2 * self.ring_size}")

    @property
    def ring_size(self) -> int:
        """Places that the tokens of a prompt are spread over."""
        return self.ranks // self.tensor_parallel
