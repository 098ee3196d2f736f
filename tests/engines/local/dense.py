"""What a question looks at, by transformers' own eager attention under an explicit mask."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engines.chunks import ChunkPlan


@dataclass(frozen=True, slots=True)
class ChunkWeights:
    """Per chunk: its share of the question's attention averaged over layers, heads and rows, and
    the sum over layers of the share that the keenest head and row give it."""

    mass: list[float]
    score: list[float]


def chunk_weights(model: PreTrainedModel, ids: list[int], plan: ChunkPlan) -> ChunkWeights:
    """Every chunk sees the anchor and itself, right before the question, which sees all."""
    positions = positions_of(plan)
    full = visible(plan)
    window = getattr(model.config, "sliding_window", None)
    distance = positions[:, None] - positions[None]
    near = bias_of(full & (distance < window)) if window else bias_of(full)
    mask: Tensor | dict[str, Tensor] = (
        near if model.config.model_type == "mistral" else bias_of(full)
    )
    if model.config.model_type in ("gemma3_text", "gpt_oss", "qwen2", "qwen3", "smollm3"):
        mask = {"full_attention": bias_of(full), "sliding_attention": near}
    with torch.inference_mode():
        attentions = model(
            input_ids=torch.tensor([ids]),
            position_ids=positions[None],
            attention_mask=mask,
            use_cache=False,
            output_attentions=True,
        ).attentions
    layers = range(len(attentions))
    types = getattr(model.config, "layer_types", None) or ["full_attention" for _ in layers]
    chosen = [i for i in layers if types[i] == "full_attention"] or list(layers)
    asked_LHTS = torch.stack([attentions[i][0, :, plan.question_start :] for i in chosen])
    # gpt-oss keeps a part of every row for its sinks.
    asked_LHTS = asked_LHTS / asked_LHTS.sum(-1, keepdim=True)
    shares = [asked_LHTS[..., start:stop].sum(-1) for start, stop in plan.chunks]
    return ChunkWeights(
        mass=[float(share_LHT.mean()) for share_LHT in shares],
        score=[float(share_LHT.amax((1, 2)).sum()) for share_LHT in shares],
    )


def positions_of(plan: ChunkPlan) -> Tensor:
    positions = torch.arange(plan.num_tokens)
    asked_from = plan.anchor_stop + max(stop - start for start, stop in plan.chunks)
    for start, stop in plan.chunks:
        positions[start:stop] = torch.arange(asked_from - (stop - start), asked_from)
    num_asked = plan.num_tokens - plan.question_start
    positions[plan.question_start :] = torch.arange(asked_from, asked_from + num_asked)
    return positions


def visible(plan: ChunkPlan) -> Tensor:
    """[T, T]: who sees whom."""
    seen = torch.ones(plan.num_tokens, plan.num_tokens, dtype=torch.bool).tril()
    for start, stop in plan.chunks:
        seen[start:stop, plan.anchor_stop : start] = False
    return seen


def bias_of(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]
