"""One request from its Ask to its reply: plan, answer, sign. Knows no parsing and no sockets.

`ChatService.reply(ask, receive, spelling)` answers any Ask in any wire format: a `Spelling`
(gateway.speech) says how whole answers and streams look; chat completions are the default.
`ChatService.begin(ask, answer_id, spelling)` plans only and gives the events to whoever sends
them by itself, `ChatService.whole(...)` the complete answer.
"""

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive

from engines.api import EngineInfo
from gateway.asks import Ask
from gateway.openai.answers import CHAT
from gateway.outcomes import concluded
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import Begun, EventStream, json_response
from gateway.routes.task import Task
from gateway.speech import Heard, Signature, Spelling, hear
from gateway.together import while_connected, within


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    heard: Heard
    signature: Signature
    headers: Mapping[str, str]


class ChatService:
    def __init__(self, parts: Parts, planner: Planner) -> None:
        self._parts = parts
        self._planner = planner

    async def reply(self, ask: Ask, receive: Receive, spelling: Spelling = CHAT) -> Response:
        """The reply, whole or as a stream that plans when it is sent. Raises what both raise."""

        async def begin() -> Begun:
            return await self.begin(ask, self.new_answer_id(spelling), spelling)

        whole = None if ask.stream else self._whole(ask, spelling)
        return await self.served(spelling.endpoint, receive, begin, whole)

    async def served(
        self,
        endpoint: str,
        receive: Receive,
        begin: Callable[[], Awaitable[Begun]],
        whole: Coroutine[Any, Any, Response] | None,
    ) -> Response:
        """`whole` while the client is there and the time lasts; without it the stream of `begin`.
        Metrics and log know either under the endpoint's name."""
        conclusion = concluded(endpoint, self._parts.metrics, self._parts.monotonic)
        limit_s = self._parts.board.current.answer.deadline_s
        if whole is not None:
            with conclusion:
                return await while_connected(receive, within(limit_s, whole))
        return EventStream(
            begin,
            conclusion=conclusion,
            keep_alive_s=self._parts.keep_alive_s,
            limit_s=limit_s,
        )

    async def whole(self, ask: Ask, answer_id: str) -> WholeAnswer:
        """Raises what planning and answering raise. Cancelling it frees the engine."""
        task = await self._planner.plan(ask, answer_id)
        signature = await self.sign(task, answer_id)
        heard = await hear(self._planner.answer(task))
        route = heard.end.facts.plan.route.value
        headers = {**self.headers(task), "x-ringway-route": route}
        return WholeAnswer(heard=heard, signature=signature, headers=headers)

    async def begin(self, ask: Ask, answer_id: str, spelling: Spelling) -> Begun:
        """A planned answer whose events have not begun. Raises what planning raises."""
        task = await self._planner.plan(ask, answer_id)
        signature = await self.sign(task, answer_id)
        return Begun(
            headers=self.headers(task),
            events=self._planner.answer(task),
            speech=spelling.speech(ask, signature),
        )

    def new_answer_id(self, spelling: Spelling) -> str:
        return f"{spelling.id_prefix}{self._parts.new_id()}"

    async def _whole(self, ask: Ask, spelling: Spelling) -> Response:
        whole = await self.whole(ask, self.new_answer_id(spelling))
        body = spelling.whole(ask, whole.heard, whole.signature)
        return json_response(body, headers=whole.headers)

    async def sign(self, task: Task, answer_id: str) -> Signature:
        return Signature(
            id=answer_id,
            created=int(self._parts.clock()),
            model=task.ask.model,
            service_tier=task.ask.service_tier,
            system_fingerprint=fingerprint(await self._planner.info(task.ask.model)),
            policy_version=task.policy.version,
        )

    def headers(self, task: Task) -> Mapping[str, str]:
        """The route is the one chosen; a stream whose route changes later says so in its chunks."""
        return {
            "x-ringway-route": task.plan.route.value,
            "x-ringway-prompt-tokens": str(task.counts.prompt_tokens),
            "x-ringway-policy-version": task.policy.version,
        }


def fingerprint(info: EngineInfo) -> str:
    """Equal for engines that give equal tokens for equal seeds."""
    told = f"{info.model}|{info.dtype}|{info.tokenizer_digest}"
    return f"fp_{hashlib.sha256(told.encode()).hexdigest()[:12]}"
