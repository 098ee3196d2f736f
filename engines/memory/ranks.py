"""What the ranks of one gang take from their host, and how much KV that leaves; admission's rules.

Follows `engines.local` allocation by allocation; a test holds it against real ranks. All figures
of processes were measured with SmolLM2-135M on 2 CPU ranks; see the constants.
"""

from dataclasses import dataclass

from engines.api import TooLittleMemory
from engines.config import EngineConfig
from engines.memory.kv import kv_bytes_per_token
from engines.memory.shape import ModelShape
from engines.memory.weights import DTYPE_BYTES, model_bytes

FLOAT32_BYTES = 4

FORKER_BYTES = 440 << 20
"""torch and transformers, imported once on the host and shared by its ranks (436 MiB seen)."""

RANK_BYTES = 40 << 20
"""What one rank writes beyond the shared imports: allocator, gloo, Python heap."""

KERNEL_BYTES = 36 << 20
"""numba's compiled code, with what of its state each rank changes; only bfloat16 has such code."""

KV_SHARE = 0.8
"""Share of the memory left over that KV may take when no budget is given. The rest is for what
has no bound here: a hierarchical question, which is not cut over ranks, and fragmentation."""

USEFUL_KV_TOKENS = 4096
"""An engine that cannot hold even this many tokens is refused at start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model is spread: a ring of `ring` places, each of `tp` tensor-parallel ranks.

    `rows` is the most rows that one rank runs through the model at once.
    """

    ring: int
    dtype: str
    rows: int
    tp: int = 1
    max_running: int = 8

    @classmethod
    def of(cls, config: EngineConfig) -> "Layout":
        """A rank's share of a prefill chunk, or a whole chunk of hierarchical attention."""
        share = -(-config.prefill_chunk_tokens // config.ring_size)
        return cls(
            ring=config.ring_size,
            dtype=config.dtype,
            rows=max(share, config.hierarchical.longest_read),
            tp=config.tensor_parallel,
            max_running=config.max_running,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankNeed:
    """Bytes of one rank at its peak. Only `shared` is counted once per host."""

    weights: int
    kv: int
    ring: int
    activations: int
    process: int
    shared: int

    @property
    def private(self) -> int:
        """Anonymous memory that no other process maps."""
        return self.weights + self.kv + self.ring + self.activations + self.process


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes on one host that holds all ranks."""

    weights: int
    activations: int
    processes: int
    kv: int
    ring: int

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.processes + self.kv + self.ring


def is_mapped(shape: ModelShape, layout: Layout) -> bool:
    """Whole weights in the file's own dtype stay mapped from it; others are each rank's own."""
    is_own = shape.file_dtype == layout.dtype and shape.quantization is None
    return is_own and layout.tp == 1


def process_bytes(dtype: str) -> int:
    """One rank's own, before it holds anything of the model."""
    return RANK_BYTES + (KERNEL_BYTES if dtype == "bfloat16" else 0)


def weight_bytes(shape: ModelShape, config: EngineConfig) -> int:
    """Weights on one host: one mapped copy, or the part of every rank."""
    layout = Layout.of(config)
    copies = 1 if is_mapped(shape, layout) else config.ranks
    return copies * model_bytes(shape, layout.dtype, layout.tp)


def ring_bytes(shape: ModelShape, layout: Layout) -> int:
    """What travels, on one rank; it does not grow with the prompt.

    Keys travel only while they are fewer bytes than the rows' queries (`engines.local.travel`),
    so queries are the larger case: two buffers of them, and for every other place on the ring
    the float32 results that leave for it and those that come from it.
    """
    if layout.ring == 1:
        return 0
    query, heads = shape.query_size // layout.tp, shape.num_heads // layout.tp
    queries = 2 * query * DTYPE_BYTES[layout.dtype]
    results = 2 * (layout.ring - 1) * (query + heads) * FLOAT32_BYTES
    return layout.rows * (queries + results)


def activation_bytes(shape: ModelShape, layout: Layout) -> int:
    """Peak of one rank's forward pass over `layout.rows` rows, and the logits that rank 0 draws
    from. Attention and MLP do not peak together."""
    size, hidden = DTYPE_BYTES[layout.dtype], shape.hidden_size
    query, key = shape.query_size // layout.tp, shape.key_size // layout.tp
    heads = shape.num_heads // layout.tp
    # Running result, one tile's result and their difference, in float32.
    accumulators = 3 * (query + heads) * FLOAT32_BYTES
    attention = (2 * hidden + 3 * query + 2 * key) * size + accumulators
    if shape.num_sliding_layers:
        seen = min(shape.sliding_window, shape.window_tokens) + layout.rows
        attention += seen * (size + FLOAT32_BYTES)
    inner = max(shape.intermediate_size, shape.shared_intermediate_size) // layout.tp
    mlp = (2 * hidden + 3 * inner) * size
    if shape.num_experts:
        expert = 2 * hidden + 3 * (shape.expert_intermediate_size // layout.tp)
        mlp = (2 * hidden + shape.experts_per_token * expert) * size
    logits = 2 * layout.max_running * shape.vocab_size * FLOAT32_BYTES
    return layout.rows * max(attention, mlp, 4 * hidden * FLOAT32_BYTES) + logits


def rank_need(shape: ModelShape, config: EngineConfig, kv_tokens: int) -> RankNeed:
    """One rank of a gang that holds `kv_tokens` in all, at its peak while it prefills them."""
    layout = Layout.of(config)
    weights, is_shared = model_bytes(shape, layout.dtype, layout.tp), is_mapped(shape, layout)
    kv = -(-kv_tokens // layout.ring) * kv_bytes_per_token(shape, layout.dtype)
    return RankNeed(
        weights=0 if is_shared else weights,
        kv=-(-kv // layout.tp),
        ring=ring_bytes(shape, layout),
        activations=activation_bytes(shape, layout),
        process=process_bytes(layout.dtype),
        shared=FORKER_BYTES + (weights if is_shared else 0),
    )


def memory_need(shape: ModelShape, config: EngineConfig, kv_tokens: int) -> MemoryNeed:
    """All ranks on one host, with KV for `kv_tokens` over all of them."""
    layout = Layout.of(config)
    return MemoryNeed(
        weights=weight_bytes(shape, config),
        activations=config.ranks * activation_bytes(shape, layout),
        processes=FORKER_BYTES + config.ranks * process_bytes(layout.dtype),
        kv=kv_tokens * kv_bytes_per_token(shape, layout.dtype),
        ring=config.ranks * ring_bytes(shape, layout),
    )


def fits(shape: ModelShape, config: EngineConfig, *, kv_tokens: int, available_bytes: int) -> bool:
    return memory_need(shape, config, kv_tokens).total <= available_bytes


def kv_budget_tokens(shape: ModelShape, config: EngineConfig, available_bytes: int) -> int:
    """Tokens of KV, over all ranks, that the engine may hold.

    Raises TooLittleMemory when the configured budget, or else a useful minimum, does not fit.
    """
    per_token = kv_bytes_per_token(shape, config.dtype)
    if config.kv_budget_bytes is not None:
        wanted = config.kv_budget_bytes // per_token
    else:
        spare = available_bytes - memory_need(shape, config, 0).total
        # What chunks take of memory is a file's, and makes way only for other chunks.
        spare -= min(config.segments.ram_bytes, spare // 4)
        wanted = int(spare * KV_SHARE) // per_token
    least = min(USEFUL_KV_TOKENS, shape.window_tokens)
    asked = wanted if config.kv_budget_bytes is not None else max(wanted, least)
    need = memory_need(shape, config, asked)
    if need.total > available_bytes:
        raise TooLittleMemory(
            model=config.model_name, needed_bytes=need.total, available_bytes=available_bytes
        )
    return asked
