"""What log and trace tell of one answer: counted, routed, retrieved, queued, prefilled, decoded.

Knows tasks and engines' events; no tracing library.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from engines.api import (
    Engine,
    EngineInfo,
    Event,
    FinishEvent,
    GenerateRequest,
    ProgressEvent,
    TokenizerFiles,
)
from gateway import logs
from gateway.answers import Answered
from gateway.routes.task import Task
from gateway.telemetry.api import Attribute, Attributes, Mark, Trace, current

MOST_MARKS = 128
"""Chunks of one prefill that are told; of a longer prefill the first ones."""


def traced(engine: Engine, monotonic: Callable[[], float]) -> Engine:
    """The engine, watched if this request is traced."""
    trace = current.get()
    return engine if trace is None else TracedEngine(engine, trace, monotonic=monotonic)


def tell_planned(task: Task, *, chosen_s: float) -> None:
    """To the request's log line and its trace. `chosen_s` is when the route was known."""
    logs.tell(**_planned(task))
    trace = current.get()
    if trace is not None:
        _trace_planned(trace, task, chosen_s)


def tell_answered(task: Task, event: Answered, *, began_s: float) -> None:
    logs.tell(**_answered(event))
    trace = current.get()
    if trace is not None:
        _trace_answered(trace, task, event, began_s)


def _trace_planned(trace: Trace, task: Task, chosen_s: float) -> None:
    counts, plan = task.counts, task.plan
    counted_s = task.started_s + task.count_s
    trace.name(f"chat {task.ask.model}")
    trace.tell(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "ringway",
            "gen_ai.request.model": task.ask.model,
            "gen_ai.request.max_tokens": plan.max_new_tokens,
            "gen_ai.request.choice.count": task.ask.n,
            "ringway.tenant": task.ask.tenant,
            "ringway.policy_version": task.policy.version,
        }
    )
    counted: Attributes = {
        "ringway.prompt_tokens": counts.prompt_tokens,
        "ringway.context_tokens": counts.context_tokens,
    }
    trace.span("ringway.count", chosen_s - task.count_s, chosen_s, counted)
    routed: Attributes = {
        "ringway.route": plan.route.value,
        "ringway.requested": plan.requested.value,
        "ringway.reason": plan.reason,
    }
    trace.span("ringway.route", min(counted_s, chosen_s), chosen_s, routed)


def _trace_answered(trace: Trace, task: Task, event: Answered, began_s: float) -> None:
    facts, usage = event.facts, event.usage
    search_ms = facts.timing_ms.get("search")
    if search_ms is not None:
        searched: Attributes = {"ringway.evidence": facts.evidence or 0.0}
        trace.span("ringway.retrieve", began_s, began_s + search_ms / 1000, searched)
    told: dict[str, Attribute] = {
        "gen_ai.response.model": task.ask.model,
        "gen_ai.response.finish_reasons": (event.reason.value,),
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "ringway.route": facts.plan.route.value,
        "ringway.tokens_read": facts.tokens_read,
    }
    if facts.coverage is not None:
        told["ringway.coverage"] = facts.coverage
    for name, route in (
        ("ringway.fallback_from", facts.plan.fallback_from),
        ("ringway.escalated_from", facts.plan.escalated_from),
    ):
        if route is not None:
            told[name] = route.value
    trace.tell(told)


def _planned(task: Task) -> Mapping[str, str | int]:
    """Counts and names, never text."""
    tab = task.ask.tab
    return {
        "answer_id": task.request_id,
        "model": task.ask.model,
        "tenant": task.ask.tenant,
        "key_id": "" if tab is None else tab.caller.key_id,
        "fidelity": task.ask.fidelity.value,
        "route": task.plan.route.value,
        "policy_version": task.policy.version,
        "prompt_tokens": task.counts.prompt_tokens,
        "context_tokens": task.counts.context_tokens,
    }


def _answered(event: Answered) -> Mapping[str, str | int | float]:
    usage, facts = event.usage, event.facts
    return {
        "route": facts.plan.route.value,
        "tokens_read": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "completion_tokens": usage.completion_tokens,
        "finish_reason": event.reason.value,
        **{f"{name}_ms": ms for name, ms in facts.timing_ms.items()},
    }


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the prompt that was read between two times."""

    began_s: float
    ended_s: float
    attributes: Attributes


@dataclass(slots=True)
class Course:
    """When one `generate` said what."""

    began_s: float
    read: list[Mark] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    first_token_s: float | None = None
    num_pieces: int = 0

    def see(self, event: Event, now_s: float) -> None:
        match event:
            case ProgressEvent():
                self._read(event, now_s)
            case FinishEvent():
                pass
            case _:
                self.num_pieces += 1
                if self.first_token_s is None:
                    self.first_token_s = now_s

    def _read(self, event: ProgressEvent, now_s: float) -> None:
        """An engine that measured its chunks has a span of each, others have a mark."""
        done: Attributes = {"ringway.done_tokens": event.done_tokens}
        if event.times is None:
            if len(self.read) < MOST_MARKS:
                self.read.append(Mark("chunk", now_s, done))
        elif len(self.chunks) < MOST_MARKS:
            turns_s = event.times.turns_s
            told = {**done, "ringway.ring_turn_seconds": turns_s} if turns_s else done
            self.chunks.append(Chunk(now_s - event.times.seconds, now_s, told))


class TracedEngine:
    """Tells the trace of every `generate`, and the engine of the trace."""

    def __init__(self, engine: Engine, trace: Trace, *, monotonic: Callable[[], float]) -> None:
        self._engine = engine
        self._trace = trace
        self._monotonic = monotonic

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def tokenizer(self) -> TokenizerFiles:
        return await self._engine.tokenizer()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        request = replace(request, traceparent=self._trace.traceparent)
        course = Course(self._monotonic())
        finish: FinishEvent | None = None
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    course.see(event, self._monotonic())
                    if isinstance(event, FinishEvent):
                        finish = event
                        self._tell(request, course, finish)
                    yield event
        finally:
            if finish is None:
                self._tell(request, course, None)

    def _tell(self, request: GenerateRequest, course: Course, finish: FinishEvent | None) -> None:
        """An engine that finished knows how long it queued; of another only what was seen."""
        ended_s = self._monotonic()
        queued_s = 0.0 if finish is None else finish.queue_s
        prefill_from_s = course.began_s + queued_s
        decode_from_s = course.first_token_s or ended_s
        read: Attributes = {
            "ringway.attention": request.attention.value,
            "ringway.prompt_tokens": len(request.prompt_ids),
            "ringway.cached_tokens": 0 if finish is None else finish.cached_tokens,
        }
        span = self._trace.span
        span("ringway.queue", course.began_s, prefill_from_s, {})
        span("ringway.prefill", prefill_from_s, decode_from_s, read, course.read)
        for chunk in course.chunks:
            span("ringway.prefill.chunk", chunk.began_s, chunk.ended_s, chunk.attributes)
        if course.first_token_s is not None:
            written = course.num_pieces if finish is None else finish.completion_tokens
            decoded: Attributes = {"gen_ai.usage.output_tokens": written}
            span("ringway.decode", decode_from_s, ended_s, decoded)
