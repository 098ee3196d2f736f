"""Which chunks share rare words with the question; knows token ids only.

A second opinion beside attention: a name that stands in one chunk of ten thousand points there
however the model reads it.

Shapes: N tokens, C chunks, Q distinct n-grams of the question. Suffix order is dim order.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GRAMS = (1, 2, 3)
PRIME = np.int64(1_000_003)
REACH_TOKENS = 12
"""How far from a word of the question what belongs to it may stand: some ten words of a line."""


class Lexicon:
    """The context's n-grams and the chunks that hold them."""

    def __init__(self, ids_N: Ids, chunks: Sequence[tuple[int, int]]) -> None:
        self._ids_N = ids_N
        self._chunks = chunks
        self._starts = np.array([start for start, _ in chunks], dtype=np.int64)

    def scores(self, asked: Sequence[Ids]) -> Floats:
        """[C]: per chunk the rarity, summed, of the n-grams that it shares with what is asked.

        `asked` are runs of tokens; no n-gram goes from one to the next. An n-gram counts once per
        chunk, and as the logarithm of how few chunks have it; one that most have counts nothing.
        """
        total_C = np.zeros(len(self._chunks))
        for size in GRAMS:
            grams_Q = _distinct([_grams(run, size) for run in asked])
            if len(grams_Q):
                total_C += self._rarity(grams_Q, size)
        return total_C

    def near(self, asked: Sequence[Ids], chunk: int) -> list[Ids]:
        """Runs of a chunk around what it shares with the question: what else is said of it there.

        Empty for a chunk that shares nothing rare.
        """
        start, stop = self._chunks[chunk]
        words = _distinct(asked)
        if not len(words):
            return []
        rare = words[self._rarity_each(words) > 0.5 * np.log(max(2, len(self._chunks)))]
        inside = self._ids_N[start:stop]
        at = np.flatnonzero(np.isin(inside, rare))
        if not len(at):
            return []
        breaks = np.flatnonzero(np.diff(at) > REACH_TOKENS) + 1
        runs = [group for group in np.split(at, breaks) if len(group)]
        return [
            inside[max(0, group[0] - REACH_TOKENS) : group[-1] + REACH_TOKENS + 1] for group in runs
        ]

    def _rarity(self, grams_Q: Ids, size: int) -> Floats:
        found_QC = self._found(grams_Q, size)
        weights: Floats = _weight(found_QC) @ found_QC
        return weights

    def _rarity_each(self, words_Q: Ids) -> Floats:
        return _weight(self._found(words_Q, 1))

    def _found(self, grams_Q: Ids, size: int) -> npt.NDArray[np.bool_]:
        """[Q, C]: which n-grams begin in which chunk; `grams_Q` is sorted."""
        grams_N = _grams(self._ids_N, size)
        which_N = np.searchsorted(grams_Q, grams_N).clip(max=len(grams_Q) - 1)
        at = np.flatnonzero(grams_Q[which_N] == grams_N)
        at = at[at >= self._chunks[0][0]]
        at = at[at < self._chunks[-1][1]]
        found_QC = np.zeros((len(grams_Q), len(self._chunks)), dtype=bool)
        found_QC[which_N[at], np.searchsorted(self._starts, at, side="right") - 1] = True
        return found_QC


def _weight(found_QC: npt.NDArray[np.bool_]) -> Floats:
    num_chunks = found_QC.shape[1]
    num_with_Q = found_QC.sum(1)
    weight_Q: Floats = np.log((num_chunks + 1) / (num_with_Q + 1))
    weight_Q[num_with_Q == 0] = 0.0
    return weight_Q


def _grams(ids_N: Ids, size: int) -> Ids:
    """Each n-gram as one number; distinct ones may meet in one with a chance of 1 in 2^64."""
    if len(ids_N) < size:
        return np.empty(0, dtype=np.int64)
    grams = ids_N[: len(ids_N) - size + 1].copy()
    with np.errstate(over="ignore"):
        for offset in range(1, size):
            grams = grams * PRIME + ids_N[offset : len(ids_N) - size + 1 + offset]
    return grams


def _distinct(runs: Sequence[Ids]) -> Ids:
    return np.unique(np.concatenate(runs)) if runs else np.empty(0, dtype=np.int64)
