"""Every proven family, on one to four ranks, gives the logits that plain transformers gives.

Short prompts in every combination and two long ones; `make bench NAME=exactness` runs the long
prompts in every combination too.
"""

from functools import cache
from pathlib import Path

import pytest

from tests.engines.local.exactness.matrix import (
    ALL,
    CHUNKS,
    LONG,
    ONE_SHOT,
    RANKS,
    Combination,
    Trace,
    compared,
    plain_traces,
    ring_traces,
)
from tests.engines.local.families import NAMES
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

Folders = tuple[tuple[str, Path], ...]


LONG_SAMPLE = (Combination("qwen3", 3, LONG, 64), Combination("mistral", 2, LONG, ONE_SHOT))


def is_sampled(one: Combination) -> bool:
    """Chunks of 64 and one shot differ only where the prompt is longer."""
    if one.length == LONG:
        return one in LONG_SAMPLE
    return one.length > CHUNKS[0] or one.chunk == CHUNKS[0]


SAMPLE = tuple(one for one in ALL if is_sampled(one))


@cache
def wanted_traces(folders: Folders) -> dict[tuple[str, int], Trace]:
    wanted = sorted({(one.family, one.length) for one in SAMPLE})
    return on_ranks(1, plain_traces, dict(folders), wanted)[0]


@cache
def ring_of(num_ranks: int, folders: Folders) -> list[dict[Combination, Trace]]:
    combinations = [one for one in SAMPLE if one.num_ranks == num_ranks]
    return on_ranks(num_ranks, ring_traces, dict(folders), combinations)


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("family", NAMES)
def test_a_family_gives_the_logits_of_plain_transformers(
    family: str, num_ranks: int, families: dict[str, Path]
) -> None:
    folders = tuple(families.items())
    for rank, traces in enumerate(ring_of(num_ranks, folders)):
        mine = {one: trace for one, trace in traces.items() if one.family == family}
        assert {one.length for one in mine} >= {1, 2 * num_ranks - 1, 203}
        for one, trace in mine.items():
            assert len(trace.logits) == (len(trace.tokens) if rank == 0 else 0)
            error, same_tokens = compared(trace, wanted_traces(folders)[family, one.length])
            assert same_tokens, one
            assert error < 1e-5, one
