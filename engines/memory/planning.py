"""How many devices one long prompt takes, and what would fit instead; pure, prints nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engines.api import TooLittleMemory
from engines.config import EngineConfig
from engines.memory.devices import Device, larger_than
from engines.memory.kv import kv_bytes_per_token
from engines.memory.ranks import (
    FORKER_BYTES,
    KV_SHARE,
    USEFUL_KV_TOKENS,
    Layout,
    activation_bytes,
    is_mapped,
    process_bytes,
    ring_bytes,
)
from engines.memory.shape import ModelShape
from engines.memory.weights import model_bytes

MAX_RING = 256
CONTEXT_STEP = 1024
TP_SIZES = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One sequence of `context_tokens`, prompt and answer, held by a ring on `device`s.

    Weights lie on every rank of the ring; `tp` GPUs may share one rank's weights and heads.
    """

    shape: ModelShape
    device: Device
    context_tokens: int
    dtype: str
    kv_dtype: str
    tp: int = 1

    @property
    def kv_bytes(self) -> int:
        return self.context_tokens * kv_bytes_per_token(self.shape, self.kv_dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes on one GPU, or on the whole host."""

    weights: int
    kv: int
    ring: int
    activations: int
    runtime: int

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.ring + self.activations + self.runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A setting that fits, and the longest context that it holds up to what was wished for."""

    device: str
    gpus: int
    tp: int
    kv_dtype: str
    context_tokens: int


def check(wish: Wish) -> None:
    """Raises ValueError for a tensor-parallel size that does not divide the model."""
    shape, tp = wish.shape, wish.tp
    if tp == 1:
        return
    if wish.device.is_host:
        raise ValueError("tensor parallelism saves nothing on one host: its ranks share one memory")
    if not shape.family.has_tp:
        raise ValueError(f"transformers has no tensor-parallel plan for {shape.model_type}")
    if not _divides(shape, tp):
        raise ValueError(
            f"--tp {tp} must divide the model's {shape.num_heads} heads and "
            f"{shape.num_kv_heads} KV heads"
        )


def need_of(wish: Wish, ring: int) -> Need:
    """Of one GPU when `ring` ranks share the context out; of the whole host when it is one."""
    return _host_need(wish, ring) if wish.device.is_host else _gpu_need(wish, ring)


def does_fit(wish: Wish, ring: int) -> bool:
    return need_of(wish, ring).total <= wish.device.num_bytes


def smallest_ring(wish: Wish) -> int | None:
    """The fewest ranks that hold the context; None if even MAX_RING do not."""
    return next((ring for ring in range(1, MAX_RING + 1) if does_fit(wish, ring)), None)


def largest_context(wish: Wish, ring: int) -> int:
    """The most tokens, up to those wished for and in steps of CONTEXT_STEP, that fit; 0 if none."""
    if does_fit(wish, ring):
        return wish.context_tokens
    low, high = 0, wish.context_tokens // CONTEXT_STEP
    while low < high:
        middle = (low + high + 1) // 2
        if does_fit(replace(wish, context_tokens=middle * CONTEXT_STEP), ring):
            low = middle
        else:
            high = middle - 1
    return low * CONTEXT_STEP


def gpu_kv_budget_tokens(shape: ModelShape, config: EngineConfig, free_bytes: int) -> int:
    """Tokens of KV that a gang may hold over all its ranks, each on a GPU with so much free.

    Raises TooLittleMemory as `kv_budget_tokens` does.
    """
    per_token = kv_bytes_per_token(shape, config.dtype)
    wish = Wish(
        shape=shape,
        device=Device(name="gpu", num_bytes=free_bytes, rows=Layout.of(config).rows),
        context_tokens=1 + config.ranks * free_bytes // per_token,
        dtype=config.dtype,
        kv_dtype=config.dtype,
        tp=config.tensor_parallel,
    )
    if config.kv_budget_bytes is not None:
        least = asked = config.kv_budget_bytes // per_token
    else:
        least = min(USEFUL_KV_TOKENS, shape.window_tokens)
        asked = max(least, int(largest_context(wish, config.ring_size) * KV_SHARE))
    if not does_fit(replace(wish, context_tokens=asked), config.ring_size):
        needed = need_of(replace(wish, context_tokens=least), config.ring_size).total
        raise TooLittleMemory(
            model=f"{config.model_name}, on each GPU,",
            needed_bytes=needed,
            available_bytes=free_bytes,
        )
    return asked


def alternatives(wish: Wish, ring: int) -> list[Alternative]:
    """What would fit where `wish` on this ring does not, the smallest change first: a shorter
    context, narrower KV, more of the same GPU, and the next larger one that takes fewer."""
    found = []
    for candidate, size in _candidates(wish, ring):
        context = largest_context(candidate, size)
        if context:
            found.append(
                Alternative(
                    device=candidate.device.name,
                    gpus=size * candidate.tp,
                    tp=candidate.tp,
                    kv_dtype=candidate.kv_dtype,
                    context_tokens=context,
                )
            )
    return found


def _candidates(wish: Wish, ring: int) -> Iterator[tuple[Wish, int]]:
    yield wish, ring
    if wish.kv_dtype != "int8":
        yield replace(wish, kv_dtype="int8"), ring
    if wish.device.is_host:
        if ring > 1:
            yield wish, 1
        return
    fewest = _fewest(wish)
    if fewest is not None:
        yield fewest
    for device in larger_than(wish.device):
        found = _fewest(replace(wish, device=device))
        if found is not None and (fewest is None or _num_gpus(found) < _num_gpus(fewest)):
            yield found
            return


def _fewest(wish: Wish) -> tuple[Wish, int] | None:
    """The fewest GPUs of this kind that hold it all, with weights shared out or not."""
    found = []
    for tp in (wish.tp, *(size for size in TP_SIZES if size > wish.tp)):
        split = replace(wish, tp=tp)
        if tp == 1 or (wish.shape.family.has_tp and _divides(wish.shape, tp)):
            ring = smallest_ring(split)
            if ring is not None:
                found.append((split, ring))
    return min(found, key=_num_gpus, default=None)


def _num_gpus(found: tuple[Wish, int]) -> int:
    return found[0].tp * found[1]


def _divides(shape: ModelShape, tp: int) -> bool:
    return tp > 0 and shape.num_heads % tp == 0 and shape.num_kv_heads % tp == 0


def _layout(wish: Wish, ring: int) -> Layout:
    return Layout(
        ring=ring,
        dtype=wish.dtype,
        rows=min(wish.device.rows, wish.context_tokens),
        tp=wish.tp,
    )


def _gpu_need(wish: Wish, ring: int) -> Need:
    layout = _layout(wish, ring)
    kv = -(-wish.kv_bytes // (ring * wish.tp))
    # The GPU kernel for masked and float32 tiles (`engines.local.tiles`) is handed a copy of the
    # layer's keys and values; FlashAttention takes them as they lie.
    layer_copy = kv // wish.shape.num_layers
    return Need(
        weights=model_bytes(wish.shape, wish.dtype, wish.tp),
        kv=kv,
        ring=ring_bytes(wish.shape, layout),
        activations=activation_bytes(wish.shape, layout) + layer_copy,
        runtime=wish.device.runtime_bytes(ring=ring, tp=wish.tp),
    )


def _host_need(wish: Wish, ring: int) -> Need:
    layout = _layout(wish, ring)
    copies = 1 if is_mapped(wish.shape, layout) else ring
    return Need(
        weights=copies * model_bytes(wish.shape, wish.dtype),
        kv=wish.kv_bytes,
        ring=ring * ring_bytes(wish.shape, layout),
        activations=ring * activation_bytes(wish.shape, layout),
        runtime=FORKER_BYTES + ring * process_bytes(wish.dtype),
    )
