"""What the supervisor remembers of one request, and what a step makes of it; no clock, no I/O."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from engines.api import (
    AnswerEndEvent,
    AttendedEvent,
    AttendedSpan,
    Attention,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    ProgressEvent,
    ReadTimes,
    Sampling,
    TokenEvent,
    TokenLogprob,
)
from engines.chunks import ChunkPlan, num_within
from engines.gang.messages import (
    NO_TOKEN,
    Ask,
    Encode,
    Open,
    Prefill,
    Sampled,
    SamplingSpec,
    StepDone,
    pack_ids,
)

SEEDS = 1 << 63

REPLAY_TOKENS = 64
"""Of an answer that goes on under another gang, in one step: they are computed a few rows at a
time, as decode did, so these take about as long as a chunk of the prompt."""

STEADY_TOKENS = 32
"""After so many tokens from one gang, the deaths of earlier ones no longer count. Not after one:
a request that kills every gang in decode still gets a token from each, at the end of prefill."""


@dataclass(slots=True, kw_only=True)
class Answers:
    """What the sequences of one request share: how many answers are still to end."""

    total: int
    unended: int
    ended_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One answer from the request's arrival to its finish, over as many epochs as that takes.

    A request for several answers is as many sequences. The first reads the prompt, and the
    others, `unforked` until then, branch off from it; if that gang dies they go on by themselves.

    `sent_ids` are the tokens that the client has; they outlive a gang. `read_tokens` to
    `decoding` tell what the present gang holds, and are reset with it: `read_tokens` counts the
    prompt's, `prefilled_tokens` those of what full attention reads, which is `num_to_prefill`
    tokens long: the prompt, or once that is chosen the shortlist. `chunk_limit` is set once a
    chunk was too large for the ranks' memory. `own_chunks` were begun for it by an earlier gang.
    `read_stops` are where prefill steps have ended, whatever gang took them: another cut would
    round otherwise in bfloat16, and the answer might go on otherwise.
    """

    id: int
    request: GenerateRequest
    plan: ChunkPlan | None
    arrived_s: float
    kv_tokens: int
    answers: Answers = field(default_factory=lambda: Answers(total=1, unended=1))
    index: int = 0
    unforked: bool = False
    ended: bool = False
    sent_ids: "array[int]" = field(default_factory=lambda: array("i"))
    is_open: bool = False
    num_replayed: int = 0
    read_tokens: int = 0
    encoded_chunks: int = 0
    begun_chunks: int = 0
    own_chunks: int = 0
    cached_tokens: int = 0
    num_to_prefill: int | None = None
    prefilled_tokens: int = 0
    decoding: bool = False
    read_stops: list[int] = field(default_factory=list)
    chunk_limit: int | None = None
    last_step: int = 0
    deaths: int = 0
    reported_tokens: int = 0
    attended: AttendedEvent | None = None
    started_s: float | None = None
    first_token_s: float | None = None
    stuck: bool = False
    """Its grammar let nothing follow: the request has failed."""

    @property
    def unread_tokens(self) -> int:
        """Prompt tokens that the present gang has still to read."""
        return 0 if self.decoding else max(0, len(self.request.prompt_ids) - self.read_tokens)

    def open(self, now_s: float) -> Open:
        """Begin on a fresh gang; tokens already sent are replayed."""
        self.is_open = True
        self.num_replayed = len(self.sent_ids)
        if self.started_s is None:
            self.started_s = now_s
        request = self.request
        return Open(
            sequence_id=self.id,
            hierarchical=request.attention is Attention.HIERARCHICAL,
            prompt_ids=pack_ids(request.prompt_ids),
            replay_ids=pack_ids(self.sent_ids),
            max_new_tokens=request.max_new_tokens,
            question_start=request.question_start,
            document_starts=list(request.document_starts),
            sampling=sampling_spec(request.sampling, self.seed),
            grammar=request.grammar,
            cache_key=request.cache_key,
        )

    @property
    def seed(self) -> int:
        return (self.request.sampling.seed + self.index) % SEEDS

    def after_fork(self, leader: "Sequence", sampled: Sampled, now_s: float) -> list[Event]:
        """The first token of a branch, which now has all that its leader has read."""
        self.unforked = False
        self.is_open = True
        self.decoding = True
        self.num_replayed = 0
        self.started_s = leader.started_s
        self.read_stops = list(leader.read_stops)
        self.read_tokens = self.reported_tokens = len(self.request.prompt_ids)
        return self.after_token(sampled, now_s)

    def lose_gang(self) -> None:
        """Forget what the dead gang held; the client's tokens stay."""
        if self.is_open:
            self.deaths += 1
        self.is_open = False
        self.decoding = False
        self.read_tokens = 0
        self.own_chunks = max(self.own_chunks, self.begun_chunks)
        self.encoded_chunks = self.begun_chunks = 0
        self.num_to_prefill = None
        self.prefilled_tokens = 0

    def next_read(
        self, step_id: int, chunk_tokens: int, encode_tokens: int
    ) -> Prefill | Encode | Ask:
        """The step that reads on. `encode_tokens` bounds what one Encode takes on, all ranks."""
        if self.plan is not None and self.num_to_prefill is None:
            return self._next_encode(self.plan.chunks, step_id, encode_tokens)
        start = self.prefilled_tokens
        stop = self._read_stop(start, min(chunk_tokens, self.chunk_limit or chunk_tokens))
        return Prefill(step_id=step_id, sequence_id=self.id, start=start, stop=stop)

    def _read_stop(self, start: int, chunk_tokens: int) -> int:
        """No step reads of what was asked and of what has been said."""
        if start >= self._num_read:
            return min(start + min(chunk_tokens, REPLAY_TOKENS), self._prefill_end)
        earlier = self.read_stops[bisect_right(self.read_stops, start) :]
        return min(earlier[0] if earlier else start + chunk_tokens, self._num_read)

    def _next_encode(
        self, chunks: tuple[tuple[int, int], ...], step_id: int, encode_tokens: int
    ) -> Encode | Ask:
        first = last = self.encoded_chunks
        if first == len(chunks):
            return Ask(step_id=step_id, sequence_id=self.id)
        while last < len(chunks) and (
            last == first or chunks[last][1] - chunks[first][0] <= encode_tokens
        ):
            last += 1
        self.begun_chunks = last
        return Encode(step_id=step_id, sequence_id=self.id, first=first, last=last)

    @property
    def _num_read(self) -> int:
        """What full attention reads before the answer."""
        prefilled = self.num_to_prefill
        return len(self.request.prompt_ids) if prefilled is None else prefilled

    @property
    def _prefill_end(self) -> int:
        return self._num_read + self.num_replayed

    def after_read(self, step: Prefill | Encode | Ask, done: StepDone, now_s: float) -> list[Event]:
        """Events that follow from a finished Prefill, Encode or Ask."""
        match step:
            case Encode(last=last):
                assert self.plan is not None
                self._count_cached(step, done)
                self.encoded_chunks = last
                self.read_tokens = self.plan.chunks[last - 1][1]
                return list(self._progress(done))
            case Ask():
                self._after_ask(done)
                return []
            case Prefill(stop=stop):
                return self._after_prefill(stop, done, now_s)

    def _count_cached(self, step: Encode, done: StepDone) -> None:
        """What an earlier gang read for this very request is no saving."""
        if step.first >= self.own_chunks:
            self.cached_tokens += done.cached_tokens

    def _after_ask(self, done: StepDone) -> None:
        assert self.plan is not None
        shortlist = self.plan.shortlist((span.start, span.stop) for span in done.spans)
        self.num_to_prefill = num_within(shortlist)
        spans = tuple(AttendedSpan(s.start, s.stop, s.mass) for s in done.spans)
        self.attended = AttendedEvent(spans, 1.0 if done.recall is None else done.recall)

    def _after_prefill(self, stop: int, done: StepDone, now_s: float) -> list[Event]:
        self.prefilled_tokens = stop
        if stop <= self._num_read and stop > (self.read_stops or [0])[-1]:
            self.read_stops.append(stop)
        is_last = stop == self._prefill_end
        if self.plan is None:
            self.read_tokens = stop
        elif is_last:
            self.read_tokens = len(self.request.prompt_ids)
        events: list[Event] = list(self._progress(done))
        if is_last:
            if self.attended and self.index == 0 and self.first_token_s is None:
                events.append(self.attended)
            self.decoding = True
            events += self.after_token(sampled_of(done, self.id), now_s)
        return events

    def after_token(self, sampled: Sampled, now_s: float) -> list[Event]:
        """The token, the finish that it brings, or both; nothing from a sequence that is stuck."""
        if sampled.token_id == NO_TOKEN:
            self.stuck = True
            return []
        if self.first_token_s is None:
            self.first_token_s = now_s
        if len(self.sent_ids) - self.num_replayed >= STEADY_TOKENS:
            self.deaths = 0
        if sampled.token_id in self.request.stop_ids:
            return self._finish(FinishReason.STOP, now_s)
        self.sent_ids.append(sampled.token_id)
        top = tuple(TokenLogprob(entry.id, entry.logprob) for entry in sampled.top)
        events: list[Event] = [TokenEvent(sampled.token_id, sampled.logprob, top, self.index)]
        if len(self.sent_ids) >= self.request.max_new_tokens:
            events += self._finish(FinishReason.LENGTH, now_s)
        return events

    def _progress(self, step: StepDone) -> Iterator[Event]:
        """A resumed sequence reads its prompt again in silence up to where it was."""
        num_prompt = len(self.request.prompt_ids)
        done = min(self.read_tokens, num_prompt)
        if done > self.reported_tokens and self.index == 0:
            self.reported_tokens = done
            yield ProgressEvent(done, num_prompt, self._times(step))

    def _times(self, step: StepDone) -> ReadTimes | None:
        return ReadTimes(step.seconds, tuple(step.turns_s)) if self.request.is_sampled else None

    def _finish(self, reason: FinishReason, now_s: float) -> list[Event]:
        """The end of this answer, and of the request if it is the last."""
        assert self.started_s is not None
        assert self.first_token_s is not None
        answers, num_tokens = self.answers, len(self.sent_ids)
        answers.unended -= 1
        answers.ended_tokens += num_tokens
        events: list[Event] = []
        if answers.total > 1:
            events.append(
                AnswerEndEvent(index=self.index, reason=reason, completion_tokens=num_tokens)
            )
        if answers.unended == 0:
            events.append(
                FinishEvent(
                    reason=reason,
                    prompt_tokens=len(self.request.prompt_ids),
                    cached_tokens=self.cached_tokens,
                    completion_tokens=answers.ended_tokens,
                    queue_s=self.started_s - self.arrived_s,
                    prefill_s=self.first_token_s - self.started_s,
                    decode_s=now_s - self.first_token_s,
                )
            )
        return events


class OutOfStep(Exception):
    """A gang's answer does not fit its step: the gang must be replaced."""


def sampled_of(done: StepDone, sequence_id: int) -> Sampled:
    for sampled in done.sampled:
        if sampled.sequence_id == sequence_id:
            return sampled
    raise OutOfStep(f"step {done.step_id} sampled nothing for sequence {sequence_id}")


def sampling_spec(sampling: Sampling, seed: int) -> SamplingSpec:
    return SamplingSpec(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=seed,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=dict(sampling.logit_bias),
        top_logprobs=sampling.top_logprobs,
    )
