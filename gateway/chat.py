"""One chat request from its Ask to its reply: plan, answer, sign. Knows no parsing, no sockets."""

import hashlib
from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive

from engines.api import EngineInfo
from gateway.asks import Ask
from gateway.openai.answers import ChunkWriter, Signature
from gateway.outcomes import concluded
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import Begun, EventStream, collect, json_response
from gateway.routes.task import Task
from gateway.together import while_connected, within

ENDPOINT = "chat.completions"


class ChatService:
    def __init__(self, parts: Parts, planner: Planner) -> None:
        self._parts = parts
        self._planner = planner

    async def reply(self, ask: Ask, receive: Receive) -> Response:
        """The reply, whole or as a stream that plans when it is sent. Raises what both raise."""
        conclusion = concluded(ENDPOINT, self._parts.metrics, self._parts.monotonic)
        limit_s = self._parts.policy.answer.deadline_s
        if not ask.stream:
            with conclusion:
                return await while_connected(receive, within(limit_s, self._whole(ask)))

        async def begin() -> Begun:
            return await self._begin(ask)

        return EventStream(
            begin,
            conclusion=conclusion,
            keep_alive_s=self._parts.keep_alive_s,
            limit_s=limit_s,
        )

    async def _whole(self, ask: Ask) -> Response:
        answer_id = self._new_answer_id()
        task = await self._planner.plan(ask, answer_id)
        signature = await self._sign(task, answer_id)
        completion = await collect(self._planner.answer(task), signature)
        headers = {**self._headers(task), "x-ringway-route": completion["ringway"]["route"]}
        return json_response(completion, headers=headers)

    async def _begin(self, ask: Ask) -> Begun:
        answer_id = self._new_answer_id()
        task = await self._planner.plan(ask, answer_id)
        signature = await self._sign(task, answer_id)
        return Begun(
            headers=self._headers(task),
            events=self._planner.answer(task),
            writer=ChunkWriter(signature, include_usage=ask.include_usage),
        )

    def _new_answer_id(self) -> str:
        return f"chatcmpl-{self._parts.new_id()}"

    async def _sign(self, task: Task, answer_id: str) -> Signature:
        return Signature(
            id=answer_id,
            created=int(self._parts.clock()),
            model=task.ask.model,
            service_tier=task.ask.service_tier,
            system_fingerprint=fingerprint(await self._planner.info()),
            policy_version=self._parts.policy.version,
        )

    def _headers(self, task: Task) -> Mapping[str, str]:
        """The route is the one chosen; a stream whose route changes later says so in its chunks."""
        return {
            "x-ringway-route": task.plan.route.value,
            "x-ringway-prompt-tokens": str(task.counts.prompt_tokens),
            "x-ringway-policy-version": self._parts.policy.version,
        }


def fingerprint(info: EngineInfo) -> str:
    """Equal for engines that give equal tokens for equal seeds."""
    told = f"{info.model}|{info.dtype}|{info.tokenizer_digest}"
    return f"fp_{hashlib.sha256(told.encode()).hexdigest()[:12]}"
