"""Hierarchical attention computed densely, two ways that share no code with the engine.

`masked_logits` lets transformers' eager attention run under an explicit mask (true positions
only); `plain_llama` is a Llama written out in torch, in which the question may see keys at other
positions than those their chunk was encoded at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engines.chunks import ChunkPlan


def visible(plan: ChunkPlan, chosen: Sequence[int], num_tokens: int) -> Tensor:
    """[T, T]: who sees whom. Rows from the question on see the anchor, the chosen chunks and the
    rows before them; a chunk sees the anchor and itself."""
    seen = torch.ones(num_tokens, num_tokens, dtype=torch.bool).tril()
    for start, stop in plan.chunks:
        seen[start:stop, plan.anchor_stop : start] = False
    for chunk, (start, stop) in enumerate(plan.chunks):
        if chunk not in chosen:
            seen[plan.question_start :, start:stop] = False
    return seen


def masked_logits(model: PreTrainedModel, ids: Sequence[int], seen: Tensor) -> Tensor:
    """Log-probabilities after the last token, by transformers' own eager attention."""
    full = bias_of(seen)
    window = getattr(model.config, "sliding_window", None)
    rows = torch.arange(len(ids))
    near = bias_of(seen & (rows[:, None] - rows[None] < window)) if window else full
    mask: Tensor | dict[str, Tensor] = near if model.config.model_type == "mistral" else full
    if model.config.model_type in ("gemma3_text", "gpt_oss", "qwen2", "qwen3", "smollm3"):
        mask = {"full_attention": full, "sliding_attention": near}
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([list(ids)]), attention_mask=mask, use_cache=False)
    logprobs: Tensor = output.logits[0, -1].float().log_softmax(-1)
    return logprobs


def bias_of(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[None, None]


@dataclass(frozen=True, slots=True)
class Layout:
    """A position per token: where it was encoded, and where the question sees it."""

    stored: list[int]
    shown: list[int]


def layout_of(plan: ChunkPlan, chosen: Sequence[int], num_tokens: int, *, weighing: bool) -> Layout:
    """Chunk-local positions, for a prompt beyond the window. While weighing, every chunk is seen
    right before the question, which leaves room for the longest."""
    anchor = plan.anchor_stop
    stored = list(range(num_tokens))
    shown = list(range(num_tokens))
    at = anchor
    asked_from = anchor + max(stop - start for start, stop in plan.chunks)
    for chunk, (start, stop) in enumerate(plan.chunks):
        stored[start:stop] = range(anchor, anchor + stop - start)
        if weighing:
            shown[start:stop] = range(asked_from - (stop - start), asked_from)
        elif chunk in chosen:
            shown[start:stop] = range(at, at + stop - start)
            at += stop - start
    question = plan.question_start
    first = asked_from if weighing else at
    shown[question:] = range(first, first + num_tokens - question)
    return Layout(stored, shown)


def plain_llama(
    model: PreTrainedModel, ids: Sequence[int], seen: Tensor, layout: Layout, question: int
) -> tuple[Tensor, Tensor]:
    """Log-probabilities after the last token, and the attention [T, T] averaged over layers and
    heads. Rows before `question` use stored positions, rows from it on use shown ones."""
    config = model.config
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = config.hidden_size // heads
    asks = (torch.arange(len(ids)) >= question)[:, None]
    stored, shown = torch.tensor(layout.stored), torch.tensor(layout.shown)
    attention = torch.zeros(len(ids), len(ids))
    with torch.inference_mode():
        x = model.model.embed_tokens(torch.tensor(list(ids)))
        for layer in model.model.layers:
            h = layer.input_layernorm(x)
            q, k, v = (
                project(h).view(len(ids), -1, size).transpose(0, 1)
                for project in (
                    layer.self_attn.q_proj,
                    layer.self_attn.k_proj,
                    layer.self_attn.v_proj,
                )
            )
            k, v = (part.repeat_interleave(heads // groups, 0) for part in (k, v))
            scores = torch.where(
                asks,
                rotated(q, shown) @ rotated(k, shown).transpose(1, 2),
                rotated(q, stored) @ rotated(k, stored).transpose(1, 2),
            )
            weights = (scores / size**0.5).masked_fill(~seen, float("-inf")).softmax(-1)
            attention += weights.mean(0) / config.num_hidden_layers
            mixed = (weights @ v).transpose(0, 1).reshape(len(ids), -1)
            x = x + layer.self_attn.o_proj(mixed)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits = model.lm_head(model.model.norm(x))[-1]
    return logits.log_softmax(-1), attention


def rotated(x_HTD: Tensor, positions: Tensor) -> Tensor:
    half = x_HTD.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(half) / half)
    angles = positions[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x_HTD[..., :half], x_HTD[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
