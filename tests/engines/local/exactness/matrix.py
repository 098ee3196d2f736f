"""Family x ranks x prompt length x chunk: the logits of a ring against those of plain transformers.

Knows how to run any set of combinations; which ones a suite runs is the suite's choice.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engines.local.executor import Executor
from engines.local.hook import AttentionPass
from engines.local.loading import Decoder, load_model
from engines.local.ring import RingGroup
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, spec_of
from tests.engines.local.families import NAMES, plain_model, prompt_of

NUM_DECODED = 8
RANKS = (1, 2, 3, 4)
ONE_SHOT = 1 << 30
CHUNKS = (64, ONE_SHOT)
LONG = 4001


class Combination(NamedTuple):
    family: str
    num_ranks: int
    length: int
    chunk: int


class Trace(NamedTuple):
    """Greedy tokens and the logits before each; ranks that do not sample have no logits."""

    tokens: list[int]
    logits: list[list[float]]


class Comparison(NamedTuple):
    error: float
    same_tokens: bool


def lengths_for(num_ranks: int) -> tuple[int, ...]:
    """One token, one less than a zigzag needs, an odd many, and more than a page of chunks."""
    return tuple(dict.fromkeys((1, 2 * num_ranks - 1, 203, LONG)))


ALL = tuple(
    Combination(family, num_ranks, length, chunk)
    for num_ranks in RANKS
    for family in NAMES
    for length in lengths_for(num_ranks)
    for chunk in CHUNKS
)


class RecordingDecoder(Decoder):
    """Keeps every row of logits that it gives."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.vocab_size = decoder.vocab_size
        self.window_tokens = decoder.window_tokens
        self.num_layers = decoder.num_layers
        self.shape = decoder.shape
        self.wide_layers = decoder.wide_layers
        self._compiled = None
        self.rows: list[list[float]] = []

    def forward(
        self, ids_T: Tensor, positions_T: Tensor, attending: AttentionPass, keep: Sequence[int]
    ) -> Tensor:
        logits = self._decoder.forward(ids_T, positions_T, attending, keep)
        self.rows.extend(logits.float().tolist())
        return logits


class Tracer:
    """Answers prompts with one model on a ring, and says which logits led there."""

    def __init__(self, folder: Path, group: RingGroup) -> None:
        self._decoder = RecordingDecoder(load_model(folder, "float32", group.heads))
        self._driver = Driver(folder, group, SMALL_CHUNKS)
        self._driver.executor = Executor(self._driver.config, group, self._decoder)

    def trace(self, length: int, chunk: int) -> Trace:
        self._decoder.rows.clear()
        case = Case(
            prompt=prompt_of(length), chunk=chunk, num_tokens=NUM_DECODED, sampling=spec_of()
        )
        sampled = self._driver.answer(case)
        return Trace([one.token_id for one in sampled], list(self._decoder.rows))


def ring_traces(
    group: RingGroup,
    folders: Mapping[str, Path],
    combinations: Sequence[Combination],
    announce: Callable[[Combination], None] | None = None,
) -> dict[Combination, Trace]:
    """Combinations of this group's size only, family by family."""
    traces: dict[Combination, Trace] = {}
    for family in dict.fromkeys(one.family for one in combinations):
        tracer = Tracer(folders[family], group)
        for one in combinations:
            if one.family == family:
                assert one.num_ranks == group.size
                traces[one] = tracer.trace(one.length, one.chunk)
                if announce is not None and group.rank == 0:
                    announce(one)
    return traces


def plain_traces(
    _: RingGroup, folders: Mapping[str, Path], wanted: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], Trace]:
    """By transformers alone, per (family, length)."""
    traces: dict[tuple[str, int], Trace] = {}
    for family, length in wanted:
        # Eager attention over a long prompt takes gigabytes; gpt-oss has its sinks nowhere else.
        attention = "sdpa" if length > 1000 and family != "gpt_oss" else "eager"
        model = plain_model(folders[family], attention)
        traces[family, length] = plain_trace(model, prompt_of(length))
    return traces


def plain_trace(model: PreTrainedModel, prompt: Sequence[int]) -> Trace:
    trace = Trace([], [])
    ids, cache = torch.tensor([list(prompt)]), None
    with torch.inference_mode():
        for _ in range(NUM_DECODED):
            output = model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1)
            cache = output.cache
            row_V = output.logits[0, -1].float()
            trace.logits.append(row_V.tolist())
            trace.tokens.append(int(row_V.argmax()))
            ids = torch.tensor([[trace.tokens[-1]]])
    return trace


def compared(given: Trace, wanted: Trace) -> Comparison:
    """Ranks without logits are compared by their tokens only."""
    error = 0.0
    if given.logits:
        error = float((torch.tensor(given.logits) - torch.tensor(wanted.logits)).abs().max())
    return Comparison(error, given.tokens == wanted.tokens)
