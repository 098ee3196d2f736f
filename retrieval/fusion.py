"""Two lists of scored chunks become one; pure, knows nothing of where the scores came from."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from retrieval.api import Candidates, Chunk, Hit
from retrieval.config import FusionConfig, FusionMethod

RRF_K = 60
"""The constant of the reciprocal-rank-fusion paper; every store's default."""

_AVERAGED_POWER = 3
"""How fast the vectors' weight falls with the number of windows that were averaged."""

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedHit:
    """`score` in [0, 1]. `lexical` is the raw BM25 and `similarity` the cosine with the query;
    None where neither the side nor the chunk's vector tells."""

    chunk: Chunk
    score: float
    lexical: float | None
    similarity: float | None


def fuse(
    candidates: Candidates, config: FusionConfig, query: Sequence[float] = ()
) -> list[FusedHit]:
    """Every candidate once, best first; ties by chunk id.

    Scores are normalised over the candidates and summed by weight. A candidate that one side did
    not return gets the lowest score that side gave; or BM25 0 when the lexical list is the
    shorter one, as it was then not cut off and the candidate holds no query term. When the hits
    carry their vectors and `query` is the query's, every cosine is exact, and feedback moves the
    query towards the first results. When a store gives no scores (NaN), ranks are fused instead.
    """
    pool = _pool(candidates, query)
    if not pool.ids:
        return []
    if config.method is FusionMethod.RRF or _has_gaps(candidates):
        scores = _rank_scores(pool.ids, candidates, config)
    else:
        scores = _score_sums(pool, config)
    hits = [
        FusedHit(
            chunk=pool.chunks[chunk_id],
            score=float(score),
            lexical=pool.lexical.get(chunk_id),
            similarity=pool.similarity.get(chunk_id),
        )
        for chunk_id, score in zip(pool.ids, scores, strict=True)
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))


def reordered(hits: Sequence[FusedHit], scores: Sequence[float]) -> list[FusedHit]:
    """The first hits by new scores in [0, 1], then the others in their order and below them."""
    first = [
        replace(hit, score=score) for hit, score in zip(hits[: len(scores)], scores, strict=True)
    ]
    floor = min(scores, default=1.0)
    rest = [replace(hit, score=hit.score * floor) for hit in hits[len(scores) :]]
    return sorted(first, key=lambda hit: (-hit.score, hit.chunk.id)) + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """All candidates by id. `vectors` has a row per id, or none when a store kept them back."""

    ids: list[str]
    chunks: Mapping[str, Chunk]
    lexical: Mapping[str, float]
    lexical_floor: float
    similarity: Mapping[str, float]
    vectors: Scores
    query: Scores


def _pool(candidates: Candidates, query: Sequence[float]) -> _Pool:
    hits = (*candidates.lexical, *candidates.vector)
    chunks = {hit.chunk.id: hit.chunk for hit in hits}
    ids = sorted(chunks)
    similarity = _scores_by_id(candidates.vector)
    by_id = {hit.chunk.id: hit.vector for hit in hits if len(hit.vector)}
    vectors, asked = np.zeros((0, 0)), np.asarray(query, dtype=np.float64)
    if ids and len(query) and len(by_id) == len(ids):
        vectors = np.asarray([by_id[chunk_id] for chunk_id in ids], dtype=np.float64)
        similarity = dict(zip(ids, (vectors @ asked).tolist(), strict=True))
    lexical = _scores_by_id(candidates.lexical)
    was_cut = len(candidates.lexical) >= len(candidates.vector)
    return _Pool(
        ids=ids,
        chunks=chunks,
        lexical=lexical,
        lexical_floor=min(lexical.values(), default=0.0) if was_cut else 0.0,
        similarity=similarity,
        vectors=vectors,
        query=asked,
    )


def _scores_by_id(hits: Sequence[Hit]) -> dict[str, float]:
    return {hit.chunk.id: hit.score for hit in hits}


def _has_gaps(candidates: Candidates) -> bool:
    return any(math.isnan(hit.score) for hit in (*candidates.lexical, *candidates.vector))


def _score_sums(pool: _Pool, config: FusionConfig) -> Scores:
    normalise, finish = _METHODS[config.method]
    weight = vector_weight(list(pool.chunks.values()), config)
    lexical = (1 - weight) * normalise(_column(pool.ids, pool.lexical, pool.lexical_floor))
    floor = min(pool.similarity.values(), default=0.0)
    total = lexical + weight * normalise(_column(pool.ids, pool.similarity, floor))
    if config.feedback_chunks and len(pool.vectors):
        first = np.argsort(-total, kind="stable")[: config.feedback_chunks]
        moved = pool.query + config.feedback_weight * pool.vectors[first].mean(axis=0)
        total = lexical + weight * normalise(pool.vectors @ moved)
    return finish(total)


def vector_weight(chunks: Sequence[Chunk], config: FusionConfig) -> float:
    """The vectors' share: less when the chunks are longer than the embedder reads at once,
    because their vectors are averages of several windows."""
    mean_chars = sum(chunk.stop - chunk.start for chunk in chunks) / len(chunks)
    if mean_chars <= config.window_chars:
        return config.vector_weight
    return config.vector_weight * (config.window_chars / mean_chars) ** _AVERAGED_POWER


def _column(ids: list[str], scores: Mapping[str, float], floor: float) -> Scores:
    return np.array([scores.get(chunk_id, floor) for chunk_id in ids], dtype=np.float64)


def _z_scores(column: Scores) -> Scores:
    spread = float(column.std())
    if spread < _FLAT:
        return np.zeros_like(column)
    standard: Scores = (column - column.mean()) / spread
    return standard


def _min_max(column: Scores) -> Scores:
    low, high = float(column.min()), float(column.max())
    if high - low < _FLAT:
        return np.zeros_like(column)
    scaled: Scores = (column - low) / (high - low)
    return scaled


def _logistic(total: Scores) -> Scores:
    squashed: Scores = 1.0 / (1.0 + np.exp(-total))
    return squashed


def _clip(total: Scores) -> Scores:
    return np.clip(total, 0.0, 1.0)


_FLAT = 1e-9
"""A side whose scores differ by less says nothing."""

_METHODS: Mapping[FusionMethod, tuple[Callable[[Scores], Scores], Callable[[Scores], Scores]]] = {
    FusionMethod.Z_SCORE: (_z_scores, _logistic),
    FusionMethod.MIN_MAX: (_min_max, _clip),
}


def _rank_scores(ids: list[str], candidates: Candidates, config: FusionConfig) -> Scores:
    """Weighted reciprocal ranks, scaled so that first on both sides is 1."""
    weight = config.vector_weight
    place = {chunk_id: index for index, chunk_id in enumerate(ids)}
    scores = np.zeros(len(ids))
    for hits, share in ((candidates.lexical, 1 - weight), (candidates.vector, weight)):
        for rank, hit in enumerate(hits, start=1):
            scores[place[hit.chunk.id]] += share * (RRF_K + 1) / (RRF_K + rank)
    return _clip(scores)
