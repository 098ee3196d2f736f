"""From an Ask to its answer: render, count, choose, answer, and go on when a route gives up.

Knows routes and policy; no HTTP and no wire format.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

from engines.api import EngineInfo, PromptTooLong
from gateway.answers import Answered, AnswerEvent, Said
from gateway.api import Fidelity, InvalidRequest, NoEngineFits, Route, UnknownModel
from gateway.asks import Ask
from gateway.engine_view import EngineView
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.prompt.model_text import ModelText
from gateway.prompt.render import Prompt, render_whole
from gateway.prompt.segment import Segmented, segment
from gateway.routes.full import answer_full
from gateway.routes.hierarchical import answer_hierarchical
from gateway.routes.retrieval import WeakEvidence, answer_retrieval
from gateway.routes.task import Means, Task
from gateway.routing import Counts, EngineFacts, Plan, choose, escalate, largest_limit
from gateway.together import together
from ingest.api import StoredText

RouteAnswer = Callable[[Task, Means], AsyncGenerator[AnswerEvent, None]]

ROUTES: Mapping[Route, RouteAnswer] = {
    Route.FULL: answer_full,
    Route.HIERARCHICAL: answer_hierarchical,
    Route.RETRIEVAL: answer_retrieval,
}


class Planner:
    def __init__(self, *, view: EngineView, means: Means, metrics: Metrics) -> None:
        self._view = view
        self._means = means
        self._metrics = metrics

    async def plan(self, ask: Ask, request_id: str) -> Task:
        """Count the prompt and choose its route.

        Raises UnknownModel, NoEngineFits, ContextRequired, RouteForbidden, TemplateRefused,
        InvalidRequest, EngineLost, and what `Library.text` raises.
        """
        started_s = self._means.monotonic()
        policy = self._means.policy
        info = await self._view.info()
        if ask.model != info.model:
            raise UnknownModel(ask.model)
        model = await self._view.model_text(info)
        engine_facts = EngineFacts(info.context_tokens)
        _refuse_alien_ids(ask, model)
        segmented = await self._segment(ask)
        _refuse_hopeless(ask, segmented, model, engine_facts, policy)
        count_from_s = self._means.monotonic()
        prompt = await asyncio.to_thread(render_whole, segmented, model)
        count_s = self._means.monotonic() - count_from_s
        counts = _count(prompt, ask)
        plan = choose(counts, ask.fidelity, engine_facts, policy, allow_fallback=ask.allow_fallback)
        self._metrics.planned(plan, counts.prompt_tokens, count_s)
        return Task(
            request_id=request_id,
            ask=ask,
            plan=plan,
            escalation=_escalation(plan, counts, engine_facts, policy),
            engine_facts=engine_facts,
            segmented=segmented,
            prompt=prompt,
            counts=counts,
            model=model,
            started_s=started_s,
            deadline_s=started_s + policy.answer.deadline_s,
            count_s=count_s,
        )

    async def answer(self, task: Task) -> AsyncGenerator[AnswerEvent, None]:
        """Raises what the route raises. Closing the generator frees the engine."""
        first_said_s: float | None = None
        monotonic = self._means.monotonic
        async with aclosing(self._by_routes(task)) as events:
            async for event in events:
                if isinstance(event, Said) and first_said_s is None:
                    first_said_s = monotonic() - task.started_s
                if isinstance(event, Answered):
                    event = _timed(event, task, first_said_s, monotonic())
                    self._metrics.answered(event)
                yield event

    async def info(self) -> EngineInfo:
        """Raises EngineLost."""
        return await self._view.info()

    async def _by_routes(self, task: Task) -> AsyncGenerator[AnswerEvent, None]:
        while True:
            try:
                async with aclosing(ROUTES[task.plan.route](task, self._means)) as events:
                    async for event in events:
                        yield event
                return
            except WeakEvidence as verdict:
                task = replace(task, plan=verdict.escalation, escalation=None)
            except PromptTooLong as error:
                task = _fallen_back(task, error, self._means.policy)

    async def _segment(self, ask: Ask) -> Segmented:
        file_ids = dict.fromkeys(one for turn in ask.turns for one in turn.file_ids)
        texts = await together(*(self._means.library.text(one) for one in file_ids))
        files: dict[str, StoredText] = dict(zip(file_ids, texts, strict=True))
        return segment(
            ask.turns,
            files,
            ask.documents,
            least_context_chars=self._means.policy.retrieval.inline_min_chars,
        )


def _count(prompt: Prompt, ask: Ask) -> Counts:
    return Counts(
        prompt_tokens=len(prompt.ids),
        context_tokens=prompt.context_tokens,
        question_tokens=len(prompt.ids) - prompt.question_start,
        max_new_tokens=ask.max_new_tokens,
        has_stores=bool(ask.vector_store_ids),
    )


def _escalation(
    plan: Plan, counts: Counts, engine_facts: EngineFacts, policy: Policy
) -> Plan | None:
    """Only a retrieval that `auto` chose by length escalates; one fallen back to has no way up,
    and no other route reads a vector store."""
    is_choice = plan.requested is Fidelity.AUTO and plan.fallback_from is None
    is_choice = is_choice and not counts.has_stores
    if plan.route is not Route.RETRIEVAL or not is_choice:
        return None
    return escalate(plan, counts, engine_facts, policy)


def _fallen_back(task: Task, error: PromptTooLong, policy: Policy) -> Task:
    """The engine holds less than it said when the route was chosen: choose again without it."""
    failed = task.plan.route
    if failed is Route.RETRIEVAL or not task.ask.allow_fallback:
        raise error
    limit = min(error.limit, len(task.prompt.ids))
    engine_facts = task.engine_facts.but(error.attention, limit)
    plan = choose(task.counts, task.ask.fidelity, engine_facts, policy, allow_fallback=True)
    plan = replace(plan, fallback_from=failed, escalated_from=None)
    return replace(task, plan=plan, engine_facts=engine_facts, escalation=None)


def _refuse_hopeless(
    ask: Ask, segmented: Segmented, model: ModelText, engine_facts: EngineFacts, policy: Policy
) -> None:
    """A prompt with more bytes than any route's limit can hold is refused without counting."""
    limit = largest_limit(engine_facts, policy)
    num_bytes = ask.num_text_bytes + sum(
        len(source.text) for source in segmented.sources if source.kind == "file"
    )
    least_tokens = num_bytes // model.encoder.max_token_bytes
    if least_tokens > limit:
        raise NoEngineFits(
            wanted=ask.fidelity.value,
            num_tokens=least_tokens,
            limit=limit,
            fits=None,
            exact=False,
        )


def _refuse_alien_ids(ask: Ask, model: ModelText) -> None:
    for token_id in ask.sampling.logit_bias:
        if token_id >= model.encoder.num_ids:
            raise InvalidRequest(
                f"Invalid key in 'logit_bias': {token_id}; the model has "
                f"{model.encoder.num_ids} token ids.",
                param="logit_bias",
                code="invalid_value",
            )


def _timed(event: Answered, task: Task, first_said_s: float | None, now_s: float) -> Answered:
    timing = {
        **event.facts.timing_ms,
        "count": task.count_s * 1000,
        "total": (now_s - task.started_s) * 1000,
    }
    if first_said_s is not None:
        timing["ttft"] = first_said_s * 1000
    rounded = {name: round(ms, 3) for name, ms in sorted(timing.items())}
    return replace(event, facts=replace(event.facts, timing_ms=rounded))
