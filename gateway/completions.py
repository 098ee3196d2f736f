"""Raw prompts from their Asks to one reply, answered in order. Knows no parsing, no sockets."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from starlette.responses import Response
from starlette.types import Receive

from engines.api import Reads
from gateway.answers import Answered, AnswerEvent, Called, ChoiceEnded, Opened, Said, Usage
from gateway.api import InvalidRequest
from gateway.asks import Ask
from gateway.chat import ChatService
from gateway.openai.completion_answers import CompletionSpelling
from gateway.planner import Planner
from gateway.replies import Begun, json_response
from gateway.routes.task import Task
from gateway.speech import Signature, hear


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    tasks: list[Task]
    signature: Signature
    spelling: CompletionSpelling


class CompletionService:
    def __init__(self, chat: ChatService, planner: Planner) -> None:
        self._chat = chat
        self._planner = planner

    async def reply(self, asks: Sequence[Ask], receive: Receive, *, echo: bool) -> Response:
        """`asks` differ in their prompts only. All are counted before the first is answered."""

        async def begin() -> Begun:
            planned = await self._plan(asks, echo=echo)
            return Begun(
                headers=self._chat.headers(planned.tasks[0]),
                events=self._in_order(planned.tasks),
                speech=planned.spelling.speech(asks[0], planned.signature),
            )

        whole = None if asks[0].stream else self._whole(asks, echo=echo)
        return await self._chat.served(CompletionSpelling.endpoint, receive, begin, whole)

    async def _whole(self, asks: Sequence[Ask], *, echo: bool) -> Response:
        planned = await self._plan(asks, echo=echo)
        heard = await hear(self._in_order(planned.tasks))
        body = planned.spelling.whole(asks[0], heard, planned.signature)
        route = heard.end.facts.plan.route.value
        headers = {**self._chat.headers(planned.tasks[0]), "x-ringway-route": route}
        return json_response(body, headers=headers)

    async def _plan(self, asks: Sequence[Ask], *, echo: bool) -> _Planned:
        answer_id = self._chat.new_answer_id(CompletionSpelling())
        ids = [answer_id] if len(asks) == 1 else [f"{answer_id}-{i}" for i in range(len(asks))]
        tasks = [await self._planner.plan(ask, of) for ask, of in zip(asks, ids, strict=True)]
        if tasks[0].reads is Reads.CHAT:
            raise InvalidRequest(
                f"The model '{asks[0].model}' reads chat only: send it to /v1/chat/completions.",
                param="model",
                code="unsupported_model",
            )
        echoes = [_text(task) if echo else "" for task in tasks for _ in range(task.ask.n)]
        return _Planned(
            tasks=tasks,
            signature=await self._chat.sign(tasks[0], answer_id),
            spelling=CompletionSpelling(echoes),
        )

    async def _in_order(self, tasks: Sequence[Task]) -> AsyncGenerator[AnswerEvent, None]:
        """The answers as one: choices numbered on, usage summed, the facts of the first."""
        ends: list[Answered] = []
        for i, task in enumerate(tasks):
            async with aclosing(self._planner.answer(task)) as events:
                async for event in events:
                    match event:
                        case Answered():
                            ends.append(event)
                        case Said() | Called() | ChoiceEnded():
                            yield replace(event, index=event.index + i * task.ask.n)
                        case Opened() if i > 0:
                            pass
                        case _:
                            yield event
        yield replace(ends[-1], usage=_sum([end.usage for end in ends]), facts=ends[0].facts)


def _text(task: Task) -> str:
    content = task.ask.raw.content if task.ask.raw else ""
    if isinstance(content, str):
        return content
    text: str = task.model.encoder.tokenizer.decode(list(content), skip_special_tokens=False)
    return text


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(
        prompt_tokens=sum(one.prompt_tokens for one in usages),
        cached_tokens=sum(one.cached_tokens for one in usages),
        completion_tokens=sum(one.completion_tokens for one in usages),
        reasoning_tokens=sum(one.reasoning_tokens for one in usages),
    )
