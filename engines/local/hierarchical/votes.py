"""How hard a question looks at each chunk; knows queries and keys, not where they come from.

Shapes: L voting layers, C chunks, H query heads, G key heads, R voting rows, S keys, D head dim,
X the rows of all query heads of one key head. Suffix order is dim order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.local.mesh import HeadGroup
from engines.local.ring import RingGroup
from engines.local.segments.int8 import Int8Keys


@dataclass(frozen=True, slots=True)
class Question:
    """Scaled queries of the voting rows, and the log-sum-exp over anchor and question."""

    query_LHRD: Tensor
    lse_LHR: Tensor

    def lse_over(self, keys: Int8Keys) -> Tensor:
        """[L, H, R]: the log-sum-exp of the scores of all these keys."""
        num_layers, num_heads, num_rows, head_dim = self.query_LHRD.shape
        num_key_heads = keys.key_LGSD.shape[1]
        query_LGXD = self.query_LHRD.reshape(num_layers, num_key_heads, -1, head_dim)
        # The scale of a channel is the same for all keys: as well the query's.
        query_LGXD = query_LGXD * keys.scale_LGD[:, :, None]
        score_LGXS = query_LGXD @ keys.key_LGSD.float().transpose(-1, -2)
        return score_LGXS.logsumexp(-1).view(num_layers, num_heads, num_rows)


@dataclass(frozen=True, slots=True)
class Weights:
    """Per chunk, shares in [0, 1] of the question's attention: `mass` averaged over layers, heads
    and rows; `keen` averaged over layers, of the head and row of each that look at any one chunk
    hardest. `score` is what the choice goes by."""

    score: tuple[float, ...]
    mass: tuple[float, ...]
    keen: tuple[float, ...]

    def recall(self, chosen: Sequence[int]) -> float:
        """The share that the chosen chunks, the anchor and the question itself cover, in the keen
        heads' eyes: exp(lse of those - lse of everything).

        An average over all heads would say little: most of them point nowhere, and theirs thins
        out with the length of the prompt, whether a fact was found or not.
        """
        missed = sum(self.keen) - sum(self.keen[chunk] for chunk in chosen)
        return min(1.0, max(0.0, 1.0 - missed))


def weigh(
    question: Question, lses: Mapping[int, Tensor], num_chunks: int, group: RingGroup
) -> Weights:
    """Weights of all chunks of the prompt, equal on all ranks; `lses` are of this rank's.

    The score takes, per layer, the head and row that look at the chunk hardest: few of them look
    a fact up, and an average over all drowns it.
    """
    own = sorted(lses)
    lse_CLHR = torch.stack([lses[chunk] for chunk in own]) if own else None
    all_LHR = _over_everything(question, lse_CLHR, group)
    if lse_CLHR is None:
        mass_CLHR = all_LHR.new_zeros(0, *all_LHR.shape)
    else:
        mass_CLHR = lse_CLHR.sub_(all_LHR).exp_()
    mine = torch.zeros(3, num_chunks)
    mine[0, own] = _highest(_peaks(mass_CLHR), group.heads).sum(0)
    mine[1, own] = _mean(mass_CLHR.mean((1, 2, 3)), group.heads)
    mine[2, own] = _keen(mass_CLHR, group).mean(0)
    score, mass, keen = group.gather(mine.reshape(-1)).sum(0).view(3, num_chunks).tolist()
    return Weights(score=tuple(score), mass=tuple(mass), keen=tuple(keen))


def _peaks(mass_CLHR: Tensor) -> Tensor:
    """[L, C]"""
    return mass_CLHR.amax((2, 3)).T.contiguous()


def _keen(mass_CLHR: Tensor, group: RingGroup) -> Tensor:
    """[L, C]: what the keenest head and row of each layer give this rank's chunks.

    The keenest of the whole prompt, so all ranks must agree on them.
    """
    num_chunks, num_layers = mass_CLHR.shape[:2]
    mass_CLX = mass_CLHR.flatten(2)
    highest_LX = mass_CLX.new_zeros(mass_CLX.shape[1:]) if not num_chunks else mass_CLX.amax(0)
    highest_LX = group.gather(highest_LX.reshape(-1)).amax(0).view(num_layers, -1)
    peak_L, which_L = highest_LX.max(-1)
    keen_LC = mass_CLX[:, torch.arange(num_layers), which_L].T.contiguous()
    if group.heads is None:
        return keen_LC
    # Of the processes that share a layer's heads, the one that has the keenest speaks for it.
    has_it_L = peak_L == group.heads.highest(peak_L.clone())
    return group.heads.highest(keen_LC * has_it_L[:, None])


def _over_everything(question: Question, lse_CLHR: Tensor | None, group: RingGroup) -> Tensor:
    chunks_LHR = torch.full_like(question.lse_LHR, float("-inf"))
    if lse_CLHR is not None:
        chunks_LHR = lse_CLHR.logsumexp(0)
    gathered = group.gather(chunks_LHR.reshape(-1)).view(-1, *chunks_LHR.shape)
    return torch.logaddexp(gathered.logsumexp(0), question.lse_LHR)


def _highest(peak_LC: Tensor, heads: HeadGroup | None) -> Tensor:
    return peak_LC if heads is None else heads.highest(peak_LC)


def _mean(mean_C: Tensor, heads: HeadGroup | None) -> Tensor:
    return mean_C if heads is None else heads.mean(mean_C)
