"""The words and the JSON of `ringway plan`; decides nothing."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from engines.memory import kv_bytes_per_token, num_parameters
from engines.memory.devices import GIB
from engines.memory.kv import windowed_kv_bytes
from engines.memory.planning import MAX_RING, Alternative, Need, Wish, need_of

SERVED_KV = ("float32", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`ring` is what the figures are of; `smallest` the fewest ranks that do, on GPUs."""

    model: str
    wish: Wish
    ring: int
    smallest: int | None
    does_fit: bool
    instead: tuple[Alternative, ...]

    @property
    def gpus(self) -> int:
        return self.ring * self.wish.tp

    @property
    def need(self) -> Need:
        return need_of(self.wish, self.ring)


def as_table(answer: Answer) -> str:
    wish, need = answer.wish, answer.need
    per_token = kv_bytes_per_token(wish.shape, wish.kv_dtype)
    where = "this machine" if wish.device.is_host else "each GPU"
    remarks = {
        "weights": _weights_remark(wish),
        "kv": f"{per_token:,} bytes per token, {_gib(wish.kv_bytes)} GiB in all",
        "ring": f"a ring of {answer.ring}",
        "activations": _activations_remark(wish),
        "runtime": "Python and torch" if wish.device.is_host else "CUDA, NCCL, fragments",
    }
    rows = [f"  {'on ' + where:<16}{'GiB':>10}"]
    rows += [f"  {name:<16}{_gib(size):>10}  {remarks[name]}" for name, size in _parts(need)]
    rows.append(
        f"  {'total':<16}{_gib(need.total):>10}  of {_gib(wish.device.num_bytes)} available"
    )
    return "\n".join([*_head(answer), *rows, *_verdict(answer), *_notes(answer)])


def as_json(answer: Answer) -> str:
    wish, need = answer.wish, answer.need
    smallest = None if answer.smallest is None else answer.smallest * wish.tp
    return json.dumps(
        {
            "model": answer.model,
            "parameters": num_parameters(wish.shape),
            "context_tokens": wish.context_tokens,
            "dtype": wish.dtype,
            "kv_dtype": wish.kv_dtype,
            "kv_bytes_per_token": kv_bytes_per_token(wish.shape, wish.kv_dtype),
            "kv_bytes": wish.kv_bytes,
            "gpu": wish.device.name,
            "gpu_bytes": wish.device.num_bytes,
            "gpus": answer.gpus,
            "tp": wish.tp,
            "ring": answer.ring,
            "bytes_per_gpu": {**asdict(need), "total": need.total},
            "fits": answer.does_fit,
            "smallest_gpus": smallest,
            "instead": [asdict(alternative) for alternative in answer.instead],
            "notes": list(_notes(answer)),
        }
    )


def _head(answer: Answer) -> Iterator[str]:
    wish, shape = answer.wish, answer.wish.shape
    yield (
        f"{answer.model}: {num_parameters(shape) / 1e9:.2f} B parameters, {shape.num_layers} "
        f"layers, {shape.num_heads} heads, {shape.num_kv_heads} KV heads of {shape.head_dim}"
    )
    where = _ranks(answer.ring) if wish.device.is_host else _gpus(answer.gpus, wish)
    yield f"context {wish.context_tokens:,} tokens, KV in {wish.kv_dtype}, on {where}"


def _weights_remark(wish: Wish) -> str:
    quantization = wish.shape.quantization
    stored = f"{quantization.method}, the rest " if quantization else ""
    return f"{stored}{wish.dtype}" + (f", shared by {wish.tp}" if wish.tp > 1 else "")


def _activations_remark(wish: Wish) -> str:
    rows = f"{min(wish.device.rows, wish.context_tokens):,} rows per rank at once"
    return rows if wish.device.is_host else f"{rows}, and one layer's KV once more"


def _parts(need: Need) -> list[tuple[str, int]]:
    return [(name, size) for name, size in asdict(need).items() if isinstance(size, int)]


def _verdict(answer: Answer) -> Iterator[str]:
    wish, device = answer.wish, answer.wish.device
    what = (
        f"this machine with {_ranks(answer.ring)}" if device.is_host else _gpus(answer.gpus, wish)
    )
    if answer.does_fit:
        yield f"fits {what}"
    elif answer.need.total - answer.need.kv - answer.need.ring > device.num_bytes:
        yield f"does not fit {what}: without any KV it is too much already"
    elif answer.smallest is None and not device.is_host:
        yield f"does not fit {what}, nor {MAX_RING * wish.tp:,}"
    else:
        yield f"does not fit {what}"
    if answer.smallest is not None and answer.smallest < answer.ring:
        yield f"the fewest that do: {_gpus(answer.smallest * wish.tp, wish)}"
    if answer.instead:
        yield "would fit instead:"
        yield from (f"  {_setting(one, answer)}" for one in answer.instead)
    elif not answer.does_fit:
        yield "nothing near it fits either"


def _setting(one: Alternative, answer: Answer) -> str:
    is_host = answer.wish.device.is_host
    parts = [_ranks(one.gpus) if is_host else f"{one.gpus} {one.device}"]
    parts += [f"--tp {one.tp}"] if one.tp > 1 else []
    parts += [f"KV in {one.kv_dtype}"] if one.kv_dtype != answer.wish.kv_dtype else []
    is_whole = one.context_tokens == answer.wish.context_tokens
    reach = "the whole context" if is_whole else f"a context of {one.context_tokens:,} tokens"
    return f"{', '.join(parts)}: {reach}"


def _notes(answer: Answer) -> Iterator[str]:
    wish, shape = answer.wish, answer.wish.shape
    if wish.context_tokens > shape.window_tokens:
        yield (
            f"note: the model was trained for {shape.window_tokens:,} tokens; full attention "
            "refuses longer prompts"
        )
    if shape.num_sliding_layers:
        least = windowed_kv_bytes(shape, wish.kv_dtype, wish.context_tokens)
        yield (
            f"note: {shape.num_sliding_layers} of {shape.num_layers} layers look back at "
            f"{shape.sliding_window:,} tokens only, but KV keeps all positions of all layers; "
            f"{_gib(least)} GiB would do"
        )
    if wish.kv_dtype not in SERVED_KV:
        yield f"note: KV in {wish.kv_dtype} is counted only; the engine keeps it in its own dtype"
    if not shape.is_known:
        kind = shape.model_type or "a model without model_type"
        yield f"note: {kind} is not a known family; it is counted like Llama"


def _gpus(count: int, wish: Wish) -> str:
    split = f" (ring of {count // wish.tp}, --tp {wish.tp})" if wish.tp > 1 else ""
    return f"{count} {wish.device.name}{split}"


def _ranks(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:,.2f}"
