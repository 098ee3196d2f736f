"""What a question looks at, by transformers' models under an explicit mask.

Shapes: L layers, H query heads, G key heads, T rows, S keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from engines.chunks import ChunkPlan

NAME = "recording"


@dataclass(frozen=True, slots=True)
class ChunkWeights:
    """Per chunk: its share of the question's attention averaged over layers, heads and rows; the
    sum over layers of the share that the head and row that look at it hardest give it; the
    average over layers of what the head and row give it that look at any one chunk hardest."""

    mass: list[float]
    score: list[float]
    keen: list[float]


class Recorder:
    """Plain attention that remembers the queries, scaled, and keys of every layer."""

    def __init__(self) -> None:
        self.query_HTD: dict[int, Tensor] = {}
        self.key_HSD: dict[int, Tensor] = {}

    def attend(  # noqa: PLR0913 (the signature is transformers')
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor,
        *,
        scaling: float,
        s_aux: Tensor | None = None,
        **_: object,
    ) -> tuple[Tensor, None]:
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        assert isinstance(module.layer_idx, int)
        self.query_HTD[module.layer_idx] = query[0] * scaling
        self.key_HSD[module.layer_idx] = key[0]
        scores = query @ key.transpose(-1, -2) * scaling + mask
        if s_aux is not None:
            sink = s_aux.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, sink], -1)
        weights = torch.softmax(scores, -1)[..., : key.shape[2]]
        return (weights @ value).transpose(1, 2).contiguous(), None


@dataclass(frozen=True, slots=True)
class Layout:
    """The prompt with each chunk's overlap repeated before it: anchor, chunks, question."""

    ids: list[int]
    positions: Tensor
    blocks: list[tuple[int, int]]


def lay_out(ids: list[int], plan: ChunkPlan, longest_read: int) -> Layout:
    laid, positions = list(ids[: plan.anchor_stop]), list(range(plan.anchor_stop))
    asked_from = plan.anchor_stop + longest_read
    blocks = [(0, plan.anchor_stop)]
    for start, stop in (plan.read(chunk) for chunk in range(len(plan.chunks))):
        blocks.append((len(laid), len(laid) + stop - start))
        laid += ids[start:stop]
        positions += range(asked_from - (stop - start), asked_from)
    question = ids[plan.question_start :]
    blocks.append((len(laid), len(laid) + len(question)))
    positions += range(asked_from, asked_from + len(question))
    return Layout(laid + question, torch.tensor(positions), blocks)


def chunk_weights(
    model: PreTrainedModel,
    ids: list[int],
    plan: ChunkPlan,
    longest_read: int,
    voting: Sequence[int],
) -> ChunkWeights:
    """Every chunk, and the question, sees the anchor and itself; then the question's queries
    weigh all keys, those of chunks as int8."""
    layout = lay_out(ids, plan, longest_read)
    recorder = Recorder()
    AttentionInterface.register(NAME, recorder.attend)
    model.set_attn_implementation(NAME)
    with torch.inference_mode():
        model(
            input_ids=torch.tensor([layout.ids]),
            position_ids=layout.positions[None],
            attention_mask=_masks(model, layout),
            use_cache=False,
        )
    shares = torch.stack([_shares(recorder, layer, layout) for layer in voting])
    keenest = [layer.flatten(0, 1)[layer.amax(-1).argmax()] for layer in shares]
    return ChunkWeights(
        mass=shares.mean((0, 1, 2)).tolist(),
        score=shares.amax((1, 2)).sum(0).tolist(),
        keen=torch.stack(keenest).mean(0).tolist(),
    )


def _shares(recorder: Recorder, layer: int, layout: Layout) -> Tensor:
    """[H, T, C]"""
    (_, anchor_stop), *chunks, (start, stop) = layout.blocks
    query_HTD, key_HSD = recorder.query_HTD[layer][:, start:stop], recorder.key_HSD[layer]
    own = query_HTD @ key_HSD[:, start:stop].transpose(-1, -2)
    own = own.masked_fill(torch.ones(own.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    anchor = query_HTD @ key_HSD[:, :anchor_stop].transpose(-1, -2)
    base = torch.cat([own, anchor], -1).logsumexp(-1, keepdim=True)
    by_chunk = [
        (query_HTD @ as_int8(key_HSD[:, a:b]).transpose(-1, -2)).logsumexp(-1, keepdim=True)
        for a, b in chunks
    ]
    return torch.softmax(torch.cat([*by_chunk, base], -1), -1)[..., :-1]


def as_int8(key_HSD: Tensor) -> Tensor:
    scale = key_HSD.abs().amax(1, keepdim=True) / 127
    return torch.round(key_HSD / scale) * scale


def _masks(model: PreTrainedModel, layout: Layout) -> Tensor | dict[str, Tensor]:
    full = _visible(layout)
    window = getattr(model.config, "sliding_window", None)
    distance = layout.positions[:, None] - layout.positions[None]
    near = _bias(full & (distance < window)) if window else _bias(full)
    if model.config.model_type in ("gemma3_text", "gpt_oss", "qwen2", "qwen3", "smollm3"):
        return {"full_attention": _bias(full), "sliding_attention": near}
    return near if model.config.model_type == "mistral" else _bias(full)


def _visible(layout: Layout) -> Tensor:
    """[T, T]: who sees whom."""
    size = len(layout.ids)
    seen = torch.zeros(size, size, dtype=torch.bool)
    seen[:, : layout.blocks[0][1]] = True
    for start, stop in layout.blocks:
        seen[start:stop, start:stop] = True
    return seen & torch.ones(size, size, dtype=torch.bool).tril()


def _bias(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
