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
    # the blank line. Encoding takes as long with either size: 322 and 321 tokens/s on one core.
    chunk_tokens: int = 256
    anchor_tokens: int = 64
    top_k: int = 8

    def __post_init__(self) -> None:
        if self.chunk_tokens < 4 * self.anchor_tokens:
            raise ValueError(
                f"chunk_tokens ({self.chunk_tokens}) must be at least 4 x anchor_tokens "
                f"({self.anchor_tokens})"
            )
        if self.anchor_tokens < 1 or self.top_k < 1:
            raise ValueError("anchor_tokens and top_k must be at least 1")


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
    dtype: str = "float32"
    prefill_chunk_tokens: int = 512
    max_running: int = 8
    max_queued: int = 64
    kv_budget_bytes: int | None = None
    step_timeout_s: float = 60.0
    max_deaths: int = 3
    """Gangs that may die in a row under one running request before it is given up."""
    hierarchical: HierarchicalConfig = field(default_factory=HierarchicalConfig)

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.threads_per_rank < 1:
            raise ValueError("ranks and threads_per_rank must be at least 1")
        if self.max_deaths < 1 or self.step_timeout_s <= 0:
            raise ValueError("max_deaths must be at least 1 and step_timeout_s above 0")
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
