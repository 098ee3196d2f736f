"""Decides what the gang does next; pure: the clock is passed in and no byte leaves here."""

from collections.abc import Iterator
from dataclasses import dataclass

from engines.api import (
    AnswerEndEvent,
    Attention,
    EngineBusy,
    EngineError,
    EngineLoad,
    EngineLost,
    Event,
    FinishEvent,
    GenerateRequest,
    RequestExpired,
)
from engines.chunks import ChunkPlan, plan_chunks
from engines.gang.limits import SERVICE_TIERS, GangLimits
from engines.gang.messages import Branch, Decode, Fork, Open, Prefill, Step, StepDone
from engines.gang.pace import LEAST_WAIT_S, Pace
from engines.gang.sequence import Answers, OutOfStep, Sequence, sampled_of

AGING_S = 30.0
"""A request waits at most this long for one that came later and is one class above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Sequences to open, then one step to run."""

    opens: tuple[Open, ...]
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a step brought one request. After `ended` the gang must close the sequence. An `error`
    is the end of the whole request."""

    sequence_id: int
    events: tuple[Event, ...]
    ended: bool
    error: EngineError | None = None


class Scheduler:
    """Owns every unfinished request: which are queued, which are open, and what each needs next.

    One step at a time: `next_turn`, then `apply` with the gang's answer, `too_large` or
    `lose_gang`. What has ended holds its KV until the ranks have let go of it (`closed`).
    """

    def __init__(self, limits: GangLimits, pace: Pace | None = None) -> None:
        self._limits = limits
        self._pace = pace or Pace()
        self._sequences: dict[int, Sequence] = {}
        self._closing: dict[int, int] = {}
        self._next_id = 1
        self._next_step = 1
        self._decoded_last = True
        self._decode_limit = limits.max_running

    def submit(self, request: GenerateRequest, now_s: float) -> int:
        """Queue a request; returns the id of its first sequence, of n consecutive ones.

        Raises EngineRefused, PromptTooLong, RequestExpired or EngineBusy.
        """
        self._limits.check(request)
        if request.deadline_s <= now_s:
            raise RequestExpired("the deadline had passed when the request arrived")
        kv_tokens = self._limits.kv_tokens(request)
        queued = self.load().queued
        if queued >= self._limits.max_queued:
            raise EngineBusy(queued=queued, retry_after_s=self.retry_after_s(kv_tokens))
        leader_id, plan = self._next_id, self._plan(request)
        answers = Answers(total=request.n, unended=request.n)
        for index in range(request.n):
            self._sequences[self._next_id] = Sequence(
                id=self._next_id,
                request=request,
                plan=plan,
                arrived_s=now_s,
                kv_tokens=kv_tokens,
                answers=answers,
                index=index,
                unforked=index > 0,
            )
            self._next_id += 1
        return leader_id

    def leave(self, sequence_id: int) -> bool:
        """Forget a request; True when the gang must close it. Unknown ids are ignored."""
        sequence = self._sequences.pop(sequence_id, None)
        if sequence is None or not sequence.is_open:
            return False
        self._closing[sequence_id] = sequence.kv_tokens
        return True

    def closed(self, sequence_id: int) -> None:
        """The ranks have let go of a sequence that had ended."""
        self._closing.pop(sequence_id, None)
        self._decode_limit = self._limits.max_running

    def expired(self, now_s: float) -> list[int]:
        """Requests whose deadline has passed."""
        return [s.id for s in self._sequences.values() if s.request.deadline_s <= now_s]

    def next_turn(self, now_s: float) -> Turn | None:
        """The next step, or None when nothing can run.

        A running stream waits for at most one chunk of somebody's prompt between two tokens.
        """
        if fork := self._due_fork():
            return Turn(opens=(), step=fork)
        decoding = self._to_decode()
        reader = None if decoding and not self._decoded_last else self._next_reader()
        if reader is not None:
            self._decoded_last = False
            opens = () if reader.is_open else (reader.open(now_s),)
            chunk = self._limits.chunk_tokens(len(decoding))
            # What every rank encodes by itself; beside streams no more than it reads on the ring.
            encode = chunk if decoding else chunk * self._limits.ranks
            return Turn(opens=opens, step=reader.next_read(self._new_step(), chunk, encode))
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
            self._pace.has_decoded(done.seconds)
            for id_ in step.sequence_ids:
                if id_ in self._sequences:
                    self._sequences[id_].last_step = step.step_id
            return [
                self._deliver(sequence, sequence.after_token(sampled_of(done, id_), now_s))
                for id_ in step.sequence_ids
                if (sequence := self._sequences.get(id_))
            ]
        sequence = self._sequences.get(step.sequence_id)
        if sequence is None:
            return []
        if isinstance(step, Fork):
            return self._after_fork(sequence, step, done, now_s)
        before = sequence.unread_tokens
        events = sequence.after_read(step, done, now_s)
        self._pace.has_read(before - sequence.unread_tokens, done.seconds)
        return [self._deliver(sequence, events)]

    def too_large(self, step: Step) -> list[int]:
        """The ranks had no memory for the step: the next one for its sequences is half as large.

        Returns the request for which nothing smaller is left. It is forgotten; the gang must
        close it.
        """
        match step:
            case Prefill(start=start, stop=stop) if stop - start > self._limits.least_chunk_tokens:
                self._decoded_last = True
                if sequence := self._sequences.get(step.sequence_id):
                    half = max((stop - start) // 2, self._limits.least_chunk_tokens)
                    sequence.chunk_limit = half
                return []
            case Decode(sequence_ids=ids) if len(ids) > 1:
                self._decoded_last = False
                self._decode_limit = len(ids) // 2
                return []
            case Fork(sequence_id=leader_id):
                return [leader_id] if self.leave(leader_id) else []
        return [id_ for id_ in sequences_of(step) if self.leave(id_)]

    def lose_gang(self) -> list[int]:
        """The gang died: every request starts over on the next, but for those returned here.

        Those have run under `max_deaths` gangs in a row that died, and are given up.
        """
        self._decoded_last = True
        self._closing.clear()
        for sequence in list(self._sequences.values()):
            self._lose_gang(sequence)
        limit = self._limits.max_deaths
        given_up = [s.id for s in self._sequences.values() if s.deaths >= limit]
        for id_ in given_up:
            del self._sequences[id_]
        return given_up

    def _lose_gang(self, sequence: Sequence) -> None:
        """Branches of an answer that has begun cannot wait for it: it will read its own tokens
        too. They read the prompt by themselves."""
        if sequence.sent_ids or sequence.ended:
            for branch in self._unforked(sequence):
                branch.unforked = False
        if sequence.ended:
            del self._sequences[sequence.id]
        sequence.lose_gang()

    def _due_fork(self) -> Fork | None:
        """Branches of a prompt that has just been read; it decodes only after them."""
        for leader in self._sequences.values():
            branches = self._unforked(leader) if leader.decoding else []
            if branches:
                return Fork(
                    step_id=self._new_step(),
                    sequence_id=leader.id,
                    branches=[Branch(sequence_id=b.id, seed=b.seed) for b in branches],
                )
        return None

    def _after_fork(
        self, leader: Sequence, step: Fork, done: StepDone, now_s: float
    ) -> list[Delivery]:
        deliveries = []
        for branch in step.branches:
            if sequence := self._sequences.get(branch.sequence_id):
                first = sampled_of(done, sequence.id)
                deliveries.append(
                    self._deliver(sequence, sequence.after_fork(leader, first, now_s))
                )
        if leader.ended:
            deliveries.append(self._deliver(leader, []))
        return deliveries

    def _unforked(self, leader: Sequence) -> list[Sequence]:
        """Answers of the leader's request that wait for it."""
        return [s for s in self._sequences.values() if s.unforked and s.answers is leader.answers]

    def load(self) -> EngineLoad:
        num_open = sum(s.is_open for s in self._sequences.values())
        return EngineLoad(
            running=num_open + len(self._closing),
            queued=sum(not (s.is_open or s.unforked) for s in self._sequences.values()),
            queued_prefill_tokens=sum(
                s.unread_tokens for s in self._sequences.values() if not s.unforked
            ),
            kv_tokens=self._kv_held(),
        )

    def retry_after_s(self, kv_tokens: int) -> float:
        """Time until a request of this size may hope for its turn, at the pace of late: what is
        waiting has been read, and enough of what is running has ended."""
        running = [s for s in self._sequences.values() if s.is_open]
        lacking = self._kv_held() + kv_tokens - self._limits.kv_budget_tokens
        read_s = self._pace.read_s(self.load().queued_prefill_tokens)
        return max(LEAST_WAIT_S, read_s, self._pace.kv_free_s(lacking, running))

    def _to_decode(self) -> list[int]:
        """The most urgent streams; those beyond `max_running` pause and keep their KV."""
        decoding = sorted(
            (s for s in self._sequences.values() if s.decoding and not s.ended), key=_urgency
        )
        chosen = decoding[: self._limits.max_running]
        if len(chosen) > self._decode_limit:
            chosen.sort(key=lambda s: s.last_step)
        return sorted(s.id for s in chosen[: self._decode_limit])

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
        return (s for s in self._sequences.values() if not (s.decoding or s.unforked))

    def _fits(self, sequence: Sequence) -> bool:
        """There is KV for it, and a place that no request of greater urgency holds."""
        ahead = sum(_urgency(s) < _urgency(sequence) for s in self._sequences.values() if s.is_open)
        branches = self._unforked(sequence)
        needed = sequence.kv_tokens + sum(b.kv_tokens for b in branches)
        has_room = self._kv_held() + needed <= self._limits.kv_budget_tokens
        return has_room and ahead + len(branches) < self._limits.max_running

    def _kv_held(self) -> int:
        """Branches to come count with their leader."""
        reading = {id(s.answers) for s in self._sequences.values() if s.is_open}
        held = sum(
            s.kv_tokens
            for s in self._sequences.values()
            if s.is_open or (s.unforked and id(s.answers) in reading)
        )
        return held + sum(self._closing.values())

    def _deliver(self, sequence: Sequence, events: list[Event]) -> Delivery:
        """A leader that ends with its first token stays until its branches have been made."""
        if sequence.stuck:
            self.leave(sequence.id)
            lost = EngineLost("the answer came to a place where its grammar lets nothing follow")
            return Delivery(sequence_id=sequence.id, events=(), ended=True, error=lost)
        if events and isinstance(events[-1], AnswerEndEvent | FinishEvent):
            sequence.ended = True
        ended = sequence.ended and not (sequence.index == 0 and self._unforked(sequence))
        if ended:
            self.leave(sequence.id)
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

    def _new_step(self) -> int:
        self._next_step += 1
        return self._next_step - 1


def sequences_of(step: Step) -> list[int]:
    """The sequences that a step brings on: of a fork the new ones."""
    match step:
        case Decode(sequence_ids=ids):
            return ids
        case Fork(branches=branches):
            return [branch.sequence_id for branch in branches]
    return [step.sequence_id]


def _urgency(sequence: Sequence) -> tuple[float, int]:
    """Lower goes first: the time of arrival, moved back by AGING_S per class.

    Since every request ages equally, comparing arrivals is aging: a flex request stands where
    a default one would that came AGING_S later.
    """
    rank = SERVICE_TIERS.index(sequence.request.service_tier)
    return sequence.arrived_s + rank * AGING_S, sequence.id
