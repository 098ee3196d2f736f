"""From logits to a token: penalties, temperature, top-k, top-p and seeded noise.

Knows one row of logits and one sequence's settings; does not know models or sequences.
A token's noise depends on the seed and the token's position only, so the same seed gives the
same tokens for any number of ranks and any batch.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from engines.gang.messages import NO_TOKEN, SamplingSpec
from engines.local.ring import RingGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """`logprob` and `top` are of the model's own distribution, before penalties and temperature,
    and None and () if not asked for."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()

    def numbers(self) -> list[float]:
        """Flat, for the ring; float64 holds every token id exactly."""
        pairs = [number for pair in self.top for number in pair]
        return [float(self.token_id), self.logprob or 0.0, *pairs]

    @classmethod
    def of_numbers(cls, numbers: Sequence[float], spec: SamplingSpec) -> "Drawn":
        """Back from `numbers`; what follows the pairs that `spec` asks for is padding."""
        if spec.top_logprobs is None:
            return cls(token_id=int(numbers[0]))
        pairs = numbers[2 : 2 + 2 * spec.top_logprobs]
        return cls(
            token_id=int(numbers[0]),
            logprob=numbers[1],
            top=tuple(zip(map(int, pairs[::2]), pairs[1::2], strict=True)),
        )


def draw(
    logits_V: Tensor,
    spec: SamplingSpec,
    generated: Sequence[int],
    position: int,
    allowed_V: Tensor | None = None,
) -> Drawn:
    """Draw the token that will stand at `position` (counted from the prompt's first token).

    `generated` are the tokens of the answer so far: penalties count those, not the prompt's.
    Where `allowed_V` is False a token is never drawn, however it is biased; NO_TOKEN when it
    leaves nothing that the model holds for possible.
    """
    logits_V = logits_V.detach().to("cpu", torch.float32)
    if not bool(torch.isfinite(logits_V).any()):
        raise ArithmeticError("the model returned no finite logit")
    scores_V = _adjusted(logits_V, spec, generated)
    if allowed_V is not None:
        scores_V = scores_V.masked_fill(~allowed_V, float("-inf"))
        if not bool(torch.isfinite(scores_V).any()):
            return Drawn(token_id=NO_TOKEN)
    token_id = _choose(scores_V, spec, position)
    if spec.top_logprobs is None:
        return Drawn(token_id=token_id)
    logprobs_V = logits_V.log_softmax(-1)
    best = logprobs_V.topk(min(spec.top_logprobs, logprobs_V.numel()))
    return Drawn(
        token_id=token_id,
        logprob=float(logprobs_V[token_id]),
        top=tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)),
    )


def agree(drawn: Sequence[Drawn], specs: Sequence[SamplingSpec], group: RingGroup) -> list[Drawn]:
    """What rank 0 drew, on every rank to the last bit; the others' `drawn` is not looked at."""
    width = 2 + 2 * max(spec.top_logprobs or 0 for spec in specs)
    table = torch.zeros(len(specs), width, dtype=torch.float64)
    if group.rank == 0:
        for row, one in zip(table, drawn, strict=True):
            numbers = one.numbers()
            row[: len(numbers)] = torch.tensor(numbers, dtype=torch.float64)
    rows = group.tell_all(table).tolist()
    return [Drawn.of_numbers(row, spec) for row, spec in zip(rows, specs, strict=True)]


def _adjusted(logits_V: Tensor, spec: SamplingSpec, generated: Sequence[int]) -> Tensor:
    changes = dict(spec.logit_bias)
    if spec.presence_penalty or spec.frequency_penalty:
        for token_id, count in Counter(generated).items():
            penalty = spec.presence_penalty + spec.frequency_penalty * count
            changes[token_id] = changes.get(token_id, 0.0) - penalty
    known = {i: change for i, change in changes.items() if 0 <= i < logits_V.numel()}
    if not known:
        return logits_V
    return logits_V.index_add(0, torch.tensor(list(known)), torch.tensor(list(known.values())))


def _choose(logits_V: Tensor, spec: SamplingSpec, position: int) -> int:
    if spec.temperature == 0.0:
        return int(logits_V.argmax())
    scores_V = _within_top_p(_within_top_k(logits_V / spec.temperature, spec.top_k), spec.top_p)
    # Exponential race: argmax of log p - log e is a draw from p, and rounding of the logits can
    # change it only where the two best are equal to the last digits.
    noise_V = torch.empty_like(scores_V).exponential_(generator=_noise(spec.seed, position))
    return int((scores_V - noise_V.log()).argmax())


def _within_top_k(scores_V: Tensor, top_k: int) -> Tensor:
    if top_k <= 0 or top_k >= scores_V.numel():
        return scores_V
    kept = scores_V.topk(top_k)
    return torch.full_like(scores_V, float("-inf")).scatter(0, kept.indices, kept.values)


def _within_top_p(scores_V: Tensor, top_p: float) -> Tensor:
    """The smallest set of likeliest tokens with mass `top_p`; never empty."""
    if top_p >= 1.0:
        return scores_V
    ordered = scores_V.softmax(-1).sort(descending=True, stable=True)
    before_V = ordered.values.cumsum(-1) - ordered.values
    dropped_V = before_V >= top_p
    dropped_V[0] = False
    return scores_V.masked_fill(
        torch.zeros_like(dropped_V).scatter(0, ordered.indices, dropped_V), float("-inf")
    )


def _noise(seed: int, position: int) -> torch.Generator:
    digest = blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
