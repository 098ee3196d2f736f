"""A rank without torch: its tokens follow from the text so far, and prompts can hold orders.

The next token is a checksum of prompt and answer, so any gang continues any stream alike, and a
lost or repeated token shows. A prompt that holds one of the ids below makes a rank misbehave.
"""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from engines.gang.messages import (
    Ask,
    Decode,
    Encode,
    Open,
    Prefill,
    Sampled,
    Span,
    Step,
    StepDone,
    unpack_ids,
)
from engines.gang.order import RankOrder
from engines.gang.rank import Rank
from engines.gang.rank_link import SupervisorLink
from engines.gang.runner import StepTooLarge
from engines.gang.scheduler import sequences_of

VOCAB = 1000
SLOW_READ = 900
"""Every Prefill or Encode of this prompt takes up to SLOW_S, or ends early when cancelled."""
SLOW_S = 10.0
SLOW_LOAD_S = 1.5
"""How long loading takes when the model's folder holds a file `slow`."""
RAISES = 901
"""Rank 1 raises at every Decode of this prompt."""
DISAGREES = 902
"""Rank 1 samples another token."""
HANGS = 903
"""Rank 1 never answers."""
PACED = 904
"""Every Decode takes 30 ms."""
CROWDED = 905
"""Rank 1 has no memory to decode this prompt together with others."""
HUGE = 906
"""Rank 1 has no memory for chunks of this prompt of more than 4 tokens."""
LATE = 907
"""Rank 0 takes longer for such chunks than a failing gang is given to explain itself."""
LATE_S = 1.3


def next_token(ids: list[int]) -> int:
    digest = hashlib.sha256(repr(ids).encode()).digest()
    return int.from_bytes(digest[:4], "big") % 800


class ScriptedRunner:
    def __init__(self, order: RankOrder) -> None:
        self._rank = order.rank
        self._texts: dict[int, list[int]] = {}
        self._hierarchical = order.config.hierarchical
        self._opened: dict[int, Open] = {}
        self._num_read: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._journal = order.config.model_dir / f"rank{order.rank}.log"

    def open(self, message: Open) -> None:
        self._note(f"open {message.sequence_id}")
        self._opened[message.sequence_id] = message
        ids = [*unpack_ids(message.prompt_ids), *unpack_ids(message.replay_ids)]
        self._texts[message.sequence_id] = ids
        self._num_read[message.sequence_id] = len(ids)

    def close(self, sequence_id: int) -> None:
        self._note(f"close {sequence_id}")
        self._texts.pop(sequence_id, None)

    def leave(self) -> None:
        self._note("leave")

    def join(self, rendezvous: str) -> None:
        self._note("join")
        for sequence_id, num_ids in self._before.items():
            del self._texts[sequence_id][num_ids:]

    def run(self, step: Step, cancelled: Callable[[int], bool]) -> StepDone:
        started = time.monotonic()
        self._before = {id_: len(self._texts[id_]) for id_ in sequences_of(step)}
        self._allocate(step)
        aborted, sampled, spans = False, [], []
        match step:
            case Prefill(sequence_id=id_, stop=stop):
                aborted = self._read_slowly(id_, cancelled)
                if stop == self._num_read[id_] and not aborted:
                    sampled = [self._sample(id_)]
            case Encode(sequence_id=id_):
                aborted = self._read_slowly(id_, cancelled)
            case Ask(sequence_id=id_):
                spans = [Span(10, 18, 0.75), Span(2, 10, 0.25)]
                self._num_read[id_] = self._shortlisted(id_, spans)
            case Decode(sequence_ids=ids):
                sampled = [self._decode(id_) for id_ in ids]
        return StepDone(
            step_id=step.step_id,
            rank=self._rank,
            seconds=time.monotonic() - started,
            sampled=sampled,
            aborted=aborted,
            spans=spans,
            recall=0.9 if spans else None,
        )

    def _allocate(self, step: Step) -> None:
        wants = [marker for id_ in sequences_of(step) for marker in self._texts[id_]]
        is_crowd = isinstance(step, Decode) and len(step.sequence_ids) > 1
        is_large = isinstance(step, Prefill) and step.stop - step.start > 4
        if self._rank == 0:
            time.sleep(LATE_S if is_large and LATE in wants else 0)
        elif (is_crowd and CROWDED in wants) or (is_large and HUGE in wants):
            raise StepTooLarge("scripted shortage")

    def _shortlisted(self, sequence_id: int, spans: list[Span]) -> int:
        """Tokens of anchor, spans, question and replay."""
        opened = self._opened[sequence_id]
        num_text = (len(opened.prompt_ids) + len(opened.replay_ids)) // 4
        chosen = sum(span.stop - span.start for span in spans)
        return self._hierarchical.anchor_tokens + chosen + num_text - opened.question_start

    def _read_slowly(self, sequence_id: int, cancelled: Callable[[int], bool]) -> bool:
        until = time.monotonic() + (SLOW_S if SLOW_READ in self._texts[sequence_id] else 0)
        while time.monotonic() < until:
            if cancelled(sequence_id):
                self._note(f"cancel {sequence_id}")
                return True
            time.sleep(0.002)
        return False

    def _decode(self, sequence_id: int) -> Sampled:
        text = self._texts[sequence_id]
        if PACED in text:
            time.sleep(0.03)
        if self._rank == 1 and HANGS in text:
            time.sleep(60)
        if self._rank == 1 and RAISES in text:
            raise RuntimeError("scripted failure")
        return self._sample(sequence_id)

    def _sample(self, sequence_id: int) -> Sampled:
        text = self._texts[sequence_id]
        token = next_token(text)
        if self._rank == 1 and DISAGREES in text:
            token += 1
        text.append(token)
        return Sampled(sequence_id=sequence_id, token_id=token)

    def _note(self, line: str) -> None:
        with Path(self._journal).open("a") as journal:
            journal.write(f"{time.monotonic():.4f} {line}\n")


def main(order: RankOrder) -> None:
    os._exit(Rank(SupervisorLink.dial(order), order.rank).serve(lambda _: load(order)))


def load(order: RankOrder) -> ScriptedRunner:
    if (order.config.model_dir / "refuse").exists():
        raise RuntimeError("this model is not supported")
    if (order.config.model_dir / "slow").exists():
        time.sleep(SLOW_LOAD_S)
    return ScriptedRunner(order)
