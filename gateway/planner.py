"""From an Ask to its answer: render, count, choose, answer, and go on when a route gives up.

Knows routes and policy; no HTTP and no wire format.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from engines.api import EngineInfo, GrammarRefused, PromptTooLong
from gateway.abilities import image_tokens, within_abilities
from gateway.admin.board import PolicyBoard
from gateway.admin.shapes import Shape, Shapes
from gateway.answers import Answered, AnswerEvent, Opened, Said
from gateway.api import CountKind, Fidelity, InvalidRequest, NoEngineFits, Route
from gateway.asks import Ask
from gateway.engine_view import EngineViews
from gateway.heavy import HeavyLane
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.prompt.model_text import ModelText
from gateway.prompt.raw import render_raw, segment_raw
from gateway.prompt.render import Prompt, render_whole
from gateway.prompt.segment import Segmented, SourceKind, segment
from gateway.routes.full import answer_full
from gateway.routes.hierarchical import answer_hierarchical
from gateway.routes.map_reduce import answer_map_reduce, needs_map_reduce, with_map_reduce
from gateway.routes.retrieval import WeakEvidence, answer_retrieval
from gateway.routes.task import Means, Task
from gateway.routing import Counts, EngineFacts, Plan, choose, escalate, largest_limit
from gateway.telemetry.answering import tell_answered, tell_planned, traced
from gateway.tenancy.accounts import Accounts, refuse_ungranted
from gateway.tenancy.current import charged
from gateway.tenancy.metered import Meter
from gateway.together import together
from gateway.tools.offer import refused_grammar, told_tools
from ingest.api import StoredText

RouteAnswer = Callable[[Task, Means], AsyncGenerator[AnswerEvent, None]]

ROUTES: Mapping[Route, RouteAnswer] = {
    Route.FULL: answer_full,
    Route.HIERARCHICAL: answer_hierarchical,
    Route.RETRIEVAL: answer_retrieval,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A prompt that is not answered: its ids, what its images are counted as, and the model."""

    info: EngineInfo
    model: ModelText
    prompt: Prompt
    image_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.prompt.ids) + self.image_tokens

    @property
    def count_kind(self) -> CountKind:
        return CountKind.ESTIMATED if self.image_tokens else self.model.count_kind


class Planner:
    """`board` has the policy in force: a request keeps the one it began with."""

    def __init__(
        self,
        *,
        views: EngineViews,
        means: Means,
        metrics: Metrics,
        board: PolicyBoard,
        accounts: Accounts,
        shapes: Shapes,
    ) -> None:
        self.views = views
        self._means = means
        self._metrics = metrics
        self._board = board
        self._accounts = accounts
        self._shapes = shapes
        self._heavy = HeavyLane()

    async def plan(self, ask: Ask, request_id: str) -> Task:
        """Count the prompt and choose its route.

        Raises UnknownModel, NoEngineFits, ContextRequired, RouteForbidden, TemplateRefused,
        InvalidRequest, EngineLost, and what `Library.text` raises.
        """
        started_s = self._means.monotonic()
        policy = self._board.current
        ask, info, model = await self._admitted(ask)
        engine_facts = with_map_reduce(info)
        limit = largest_limit(engine_facts, policy)
        await _refuse_hopeless(ask, ask.texts, model, limit)
        segmented = await self._segment(ask, policy)
        await _refuse_hopeless(ask, [*ask.texts, *_file_texts(segmented)], model, limit)
        count_from_s = self._means.monotonic()
        prompt = await self._rendered(ask, segmented, model)
        count_s = self._means.monotonic() - count_from_s
        num_image_tokens = image_tokens(ask, info)
        counts = _count(prompt, ask, num_image_tokens)
        self._shapes.record(_shape(counts, ask, engine_facts))
        plan = choose(counts, ask.fidelity, engine_facts, policy, allow_fallback=ask.allow_fallback)
        self._metrics.planned(plan, counts.prompt_tokens, count_s)
        task = Task(
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
            policy=policy,
            reads=info.reads,
            maps=needs_map_reduce(info),
            image_tokens=num_image_tokens,
        )
        tell_planned(task, chosen_s=self._means.monotonic())
        return task

    async def read(self, ask: Ask, *, opens_answer: bool = True) -> "Reading":
        """The prompt as `plan` would count it. Raises what reading it raises there."""
        policy = self._board.current
        ask, info, model = await self._admitted(ask)
        segmented = await self._segment(ask, policy)
        segmented = replace(segmented, opens_answer=opens_answer)
        prompt = await self._rendered(ask, segmented, model)
        return Reading(info=info, model=model, prompt=prompt, image_tokens=image_tokens(ask, info))

    async def answer(self, task: Task) -> AsyncGenerator[AnswerEvent, None]:
        """Raises what reserving and the route raise. Closing the generator frees the engine.

        What was reserved is settled before Answered is told, or when the generator is closed.
        """
        first_said_s: float | None = None
        monotonic = self._means.monotonic
        began_s = monotonic()
        async with (
            self._accounts.hold(task) as meter,
            self._metrics.answering(meter, task.counts.prompt_tokens),
            aclosing(self._by_routes(task, meter)) as events,
        ):
            async for event in events:
                if isinstance(event, Opened):
                    meter.route = event.facts.plan.route
                if isinstance(event, Said) and first_said_s is None:
                    first_said_s = monotonic() - task.started_s
                if isinstance(event, Answered):
                    event = _timed(event, task, first_said_s, monotonic())
                    self._metrics.answered(event)
                    tell_answered(task, event, began_s=began_s)
                    await meter.end()
                yield event

    async def info(self, model: str | None = None) -> EngineInfo:
        """Of a model that is served, or of the first. Raises UnknownModel and EngineLost."""
        if model is None:
            return await self.views.first.info()
        return (await self.views.of(model))[1]

    async def _by_routes(self, task: Task, meter: Meter) -> AsyncGenerator[AnswerEvent, None]:
        engine = self.views.engine_of(task.ask.model)
        means = replace(
            self._means,
            engine=meter.metered(traced(engine, self._means.monotonic)),
            library=self._means.library.for_tenant(task.ask.tenant),
            policy=task.policy,
        )
        while True:
            try:
                async with aclosing(_route_of(task)(task, means)) as events:
                    async for event in events:
                        yield event
                return
            except WeakEvidence as verdict:
                task = replace(task, plan=verdict.escalation, escalation=None)
            except GrammarRefused as error:
                raise refused_grammar(task.ask, error) from error
            except PromptTooLong as error:
                task = _fallen_back(task, error, task.policy)

    async def _admitted(self, ask: Ask) -> tuple[Ask, EngineInfo, ModelText]:
        """The ask with who pays for it, and the model that it may use and fits."""
        ask = charged(ask)
        refuse_ungranted(ask)
        view, info = await self.views.of(ask.model)
        ask = await within_abilities(ask, info, self.views.names_where)
        model = await view.model_text(info)
        _refuse_alien_ids(ask, model)
        return ask, info, model

    async def _rendered(self, ask: Ask, segmented: Segmented, model: ModelText) -> Prompt:
        num_chars = sum(map(len, (*ask.texts, *_file_texts(segmented))))
        return await self._heavy.run(num_chars, _render, ask, segmented, model)

    async def _segment(self, ask: Ask, policy: Policy) -> Segmented:
        least_context_chars = policy.retrieval.inline_min_chars
        library = self._means.library.for_tenant(ask.tenant)
        if ask.raw is not None:
            return await self._heavy.run(
                sum(map(len, ask.texts)),
                segment_raw,
                ask.raw,
                least_context_chars=least_context_chars,
            )
        file_ids = dict.fromkeys(one for turn in ask.turns for one in turn.file_ids)
        texts = await together(*(library.text(one) for one in file_ids))
        files: dict[str, StoredText] = dict(zip(file_ids, texts, strict=True))
        segmented = await self._heavy.run(
            sum(len(turn.text) for turn in ask.turns),
            segment,
            ask.turns,
            files,
            ask.documents,
            least_context_chars=least_context_chars,
        )
        return replace(segmented, tools=told_tools(ask.tools))


def _route_of(task: Task) -> RouteAnswer:
    if task.maps and task.plan.route is Route.HIERARCHICAL:
        return answer_map_reduce
    return ROUTES[task.plan.route]


def _render(ask: Ask, segmented: Segmented, model: ModelText) -> Prompt:
    if ask.raw is not None:
        return render_raw(ask.raw, segmented, model)
    return render_whole(segmented, model)


def _shape(counts: Counts, ask: Ask, facts: EngineFacts) -> Shape:
    return Shape(
        counts=counts,
        fidelity=ask.fidelity,
        allow_fallback=ask.allow_fallback,
        facts=facts,
    )


def _count(prompt: Prompt, ask: Ask, num_image_tokens: int) -> Counts:
    """A raw prompt has no context to search: passages need a template to be put into."""
    return Counts(
        prompt_tokens=len(prompt.ids) + num_image_tokens,
        context_tokens=prompt.context_tokens if ask.raw is None else 0,
        question_tokens=len(prompt.ids) - prompt.question_start + num_image_tokens,
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


def _file_texts(segmented: Segmented) -> list[str]:
    return [one.text for one in segmented.sources if one.kind is SourceKind.FILE]


async def _refuse_hopeless(ask: Ask, texts: Sequence[str], model: ModelText, limit: int) -> None:
    """A prompt that has more tokens than any route's limit, whatever they are, is not counted."""
    if sum(len(text) if text.isascii() else 4 * len(text) for text in texts) <= limit:
        return
    bound = model.encoder.bound
    least_tokens = await asyncio.to_thread(bound.least_tokens, texts, enough=limit)
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
