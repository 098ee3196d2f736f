"""Decides what the gang does next; pure: the clock is passed in and no byte leaves here."""

from collections.abc import Iterator
from dataclasses import dataclass

from engines.api import (
    Attention,
    EngineBusy,
    EngineLoad,
    Event,
    FinishEvent,
    GenerateRequest,
    RequestExpired,
)
from engines.chunks import ChunkPlan, plan_chunks
from engines.gang.limits import SERVICE_TIERS, GangLimits
from engines.gang.messages import Decode, Open, Step, StepDone
from engines.gang.sequence import OutOfStep, Sequence, sampled_of

AGING_S = 30.0
"""A request waits at most this long for one that came later and is one class above it."""

MAX_DEATHS = 3
"""Gangs that may die in a row under one running request before it is given up."""

RATE_KEEP = 0.8
"""Share of the old prefill rate that survives one new measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Sequences to open, then one step to run."""

    opens: tuple[Open, ...]
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a step brought one request. After `ended` the gang may close the sequence."""

    sequence_id: int
    events: tuple[Event, ...]
    ended: bool


class Scheduler:
    """Owns every unfinished request: which are queued, which are open, and what each needs next.

    One step at a time: `next_turn`, then `apply` with the gang's answer, or `lose_gang`.
    """

    def __init__(self, limits: GangLimits, *, first_rate: float = 1000.0) -> None:
        self._limits = limits
        self._sequences: dict[int, Sequence] = {}
        self._next_id = 1
        self._next_step = 1
        self._decoded_last = True
        self._rate = first_rate

    def submit(self, request: GenerateRequest, now_s: float) -> int:
        """Queue a request; returns its sequence id.

        Raises EngineRefused, PromptTooLong, RequestExpired or EngineBusy.
        """
        self._limits.check(request)
        if request.deadline_s <= now_s:
            raise RequestExpired("the deadline had passed when the request arrived")
        queued = sum(not s.is_open for s in self._sequences.values())
        if queued >= self._limits.max_queued:
            raise EngineBusy(queued=queued, retry_after_s=self.retry_after_s())
        sequence = Sequence(
            id=self._next_id,
            request=request,
            plan=self._plan(request),
            arrived_s=now_s,
            kv_tokens=self._limits.kv_tokens(request),
        )
        self._next_id += 1
        self._sequences[sequence.id] = sequence
        return sequence.id

    def leave(self, sequence_id: int) -> bool:
        """Forget a request; True when the gang holds KV for it. Unknown ids are ignored."""
        sequence = self._sequences.pop(sequence_id, None)
        return sequence is not None and sequence.is_open

    def next_turn(self, now_s: float) -> Turn | None:
        """The next step, or None when nothing can run.

        A running stream waits for at most one chunk of somebody's prompt between two tokens.
        """
        decoding = [s.id for s in self._sequences.values() if s.decoding]
        reader = None if decoding and not self._decoded_last else self._next_reader()
        if reader is not None:
            self._decoded_last = False
            opens = () if reader.is_open else (reader.open(now_s),)
            chunk = self._limits.prefill_chunk_tokens
            step = reader.next_read(self._new_step(), chunk, chunk * self._limits.ranks)
            return Turn(opens=opens, step=step)
        if not decoding:
            return None
        self._decoded_last = True
        return Turn(opens=(), step=Decode(step_id=self._new_step(), sequence_ids=decoding))

    def apply(self, step: Step, done: StepDone, now_s: float) -> list[Delivery]:
        """Take in a finished step. Raises OutOfStep when the answer does not fit it.

        Sequences that left meanwhile are passed over. Only they may have been aborted.
        """
        if done.aborted:
            if any(id_ in self._sequences for id_ in sequences_of(step)):
                raise OutOfStep(f"step {step.step_id} was aborted and nobody had asked for it")
            return []
        if isinstance(step, Decode):
            return [
                self._deliver(sequence, sequence.after_token(sampled_of(done, id_), now_s))
                for id_ in step.sequence_ids
                if (sequence := self._sequences.get(id_))
            ]
        sequence = self._sequences.get(step.sequence_id)
        if sequence is None:
            return []
        before = sequence.unread_tokens
        events = sequence.after_read(step, done, now_s)
        self._measure(before - sequence.unread_tokens, done.seconds)
        return [self._deliver(sequence, events)]

    def lose_gang(self) -> list[int]:
        """The gang died: every request starts over on the next, but for those returned here.

        Those have run under MAX_DEATHS gangs in a row that died, and are given up.
        """
        self._decoded_last = True
        for sequence in self._sequences.values():
            sequence.lose_gang()
        given_up = [s.id for s in self._sequences.values() if s.deaths >= MAX_DEATHS]
        for id_ in given_up:
            del self._sequences[id_]
        return given_up

    def load(self) -> EngineLoad:
        running = sum(s.is_open for s in self._sequences.values())
        return EngineLoad(
            running=running,
            queued=len(self._sequences) - running,
            queued_prefill_tokens=sum(s.unread_tokens for s in self._sequences.values()),
        )

    def retry_after_s(self) -> float:
        """Time until what is waiting has been read, at the rate of late."""
        return max(1.0, self.load().queued_prefill_tokens / self._rate)

    def _next_reader(self) -> Sequence | None:
        """The most urgent request that can read on now.

        A queued request that does not fit holds back the queued ones behind it, or a large one
        would never get in; open ones read on.
        """
        blocked = False
        for sequence in sorted(self._unread(), key=_urgency):
            if sequence.is_open:
                return sequence
            if not blocked and self._fits(sequence):
                return sequence
            blocked = True
        return None

    def _unread(self) -> Iterator[Sequence]:
        return (s for s in self._sequences.values() if not s.decoding)

    def _fits(self, sequence: Sequence) -> bool:
        held = [s.kv_tokens for s in self._sequences.values() if s.is_open]
        has_room = sum(held) + sequence.kv_tokens <= self._limits.kv_budget_tokens
        return has_room and len(held) < self._limits.max_running

    def _deliver(self, sequence: Sequence, events: list[Event]) -> Delivery:
        ended = bool(events) and isinstance(events[-1], FinishEvent)
        if ended:
            del self._sequences[sequence.id]
        return Delivery(sequence_id=sequence.id, events=tuple(events), ended=ended)

    def _plan(self, request: GenerateRequest) -> ChunkPlan | None:
        if request.attention is Attention.FULL:
            return None
        return plan_chunks(
            len(request.prompt_ids),
            request.question_start,
            request.document_starts,
            self._limits.hierarchical,
        )

    def _measure(self, num_tokens: int, seconds: float) -> None:
        if num_tokens > 0 and seconds > 0:
            self._rate = RATE_KEEP * self._rate + (1 - RATE_KEEP) * num_tokens / seconds

    def _new_step(self) -> int:
        self._next_step += 1
        return self._next_step - 1


def sequences_of(step: Step) -> list[int]:
    return step.sequence_ids if isinstance(step, Decode) else [step.sequence_id]


def _urgency(sequence: Sequence) -> tuple[float, int]:
    """Lower goes first: the time of arrival, moved back by AGING_S per class.

    Since every request ages equally, comparing arrivals is aging: a flex request stands where
    a default one would that came AGING_S later.
    """
    rank = SERVICE_TIERS.index(sequence.request.service_tier)
    return sequence.arrived_s + rank * AGING_S, sequence.id
