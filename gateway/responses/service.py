"""One request for a response, from its body to its reply: history before, keeping after.

Answering is `gateway.chat`'s; here conversations are put together and kept.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import msgspec
from starlette.responses import Response
from starlette.types import Receive

from engines.api import FinishReason
from gateway.answers import Answered, AnswerEvent
from gateway.api import InvalidRequest
from gateway.asks import Ask
from gateway.chat import ChatService
from gateway.openai.compacting import CompactBody, compacted
from gateway.openai.compaction import CompactionCut
from gateway.openai.responses_ask import own_names, response_ask
from gateway.openai.responses_bodies import ResponseBody
from gateway.openai.responses_items import KEPT_ITEMS, InputItem, listed
from gateway.openai.responses_objects import (
    InputItemList,
    OutputObject,
    ResponseObject,
    ResponseWriter,
)
from gateway.openai.responses_stream import ResponseSpeech
from gateway.outcomes import concluded
from gateway.parts import Parts
from gateway.replies import Begun, EventStream, json_response
from gateway.responses.storage import KeptResponse, ResponseMissing
from gateway.speech import Heard, Signature, Speech
from gateway.together import while_connected, within

SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class ResponseSpelling:
    """Responses as a wire format of `gateway.chat`."""

    body: ResponseBody
    endpoint: str = "responses"
    id_prefix: str = "resp_"

    def whole(self, ask: Ask, heard: Heard, signature: Signature) -> ResponseObject:
        writer = ResponseWriter(body=self.body, signature=signature)
        end, choice = heard.end, heard.choices[0]
        output: list[OutputObject] = []
        if self.body.file_search is not None:
            output.append(writer.search_call(end.facts.query, end.facts.found))
        if choice.text or not choice.calls:
            output.append(writer.message(choice.text, choice.tokens, end))
        output += [writer.call(i, call, end) for i, call in enumerate(choice.calls)]
        return writer.ended(output, end)

    def speech(self, ask: Ask, signature: Signature) -> Speech:
        return ResponseSpeech(ResponseWriter(body=self.body, signature=signature))


class ResponsesService:
    def __init__(self, parts: Parts, chat: ChatService) -> None:
        self._parts = parts
        self._chat = chat

    async def reply(self, body: ResponseBody, receive: Receive, *, tenant: str) -> Response:
        """The reply, whole or as a stream that plans when it is sent. Raises what both raise."""
        spelling = ResponseSpelling(body)
        ask = await self._ask(body, tenant)
        conclusion = concluded(spelling.endpoint, self._parts.metrics, self._parts.monotonic)
        limit_s = self._parts.board.current.answer.deadline_s
        if not ask.stream:
            with conclusion:
                return await while_connected(receive, within(limit_s, self._whole(ask, spelling)))

        async def begin() -> Begun:
            return await self._begin(ask, spelling)

        return EventStream(
            begin,
            conclusion=conclusion,
            keep_alive_s=self._parts.keep_alive_s,
            limit_s=limit_s,
        )

    async def compact(self, body: CompactBody, receive: Receive, *, tenant: str) -> Response:
        """The conversation as its user's messages and a summary of the rest. Raises what
        answering raises, and CompactionCut."""
        with concluded("responses.compact", self._parts.metrics, self._parts.monotonic):
            limit_s = self._parts.board.current.answer.deadline_s
            return await while_connected(receive, within(limit_s, self._compacted(body, tenant)))

    async def _compacted(self, body: CompactBody, tenant: str) -> Response:
        history: Sequence[InputItem] = ()
        if body.previous_response_id is not None:
            history = await self._history(body.previous_response_id, tenant)
        asking = body.asking()
        ask = replace(response_ask(asking, history, seed=self._parts.new_seed()), tenant=tenant)
        with own_names():
            whole = await self._chat.whole(ask, self._chat.new_answer_id(ResponseSpelling(asking)))
        end, said = whole.heard.end, whole.heard.choices[0].text
        if end.reason is FinishReason.LENGTH or not said.strip():
            raise CompactionCut(end.usage.completion_tokens)
        told = compacted([*history, *body.items], whole.heard, whole.signature)
        return json_response(told, headers=whole.headers)

    async def input_items(self, response_id: str, *, tenant: str) -> list[dict[str, object]]:
        """All that the answer was read from, oldest first. Raises ResponseMissing."""
        chain = await self._parts.responses.chain(response_id, tenant=tenant)
        items = [one for kept in chain[:-1] for one in _turns_of(kept)]
        return items + _items_of(chain[-1])

    async def _ask(self, body: ResponseBody, tenant: str) -> Ask:
        history: Sequence[InputItem] = ()
        if body.previous_response_id is not None:
            history = await self._history(body.previous_response_id, tenant)
        ask = response_ask(body, history, seed=self._parts.new_seed())
        return replace(ask, tenant=tenant)

    async def _history(self, response_id: str, tenant: str) -> Sequence[InputItem]:
        try:
            chain = await self._parts.responses.chain(response_id, tenant=tenant)
        except ResponseMissing as error:
            raise InvalidRequest(
                f"Previous response with id '{error.response_id}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            ) from error
        return KEPT_ITEMS.validate_python([one for kept in chain for one in _turns_of(kept)])

    async def _whole(self, ask: Ask, spelling: ResponseSpelling) -> Response:
        with own_names():
            whole = await self._chat.whole(ask, self._chat.new_answer_id(spelling))
        response = spelling.whole(ask, whole.heard, whole.signature)
        await self._keep(ask, spelling.body, response)
        return json_response(response, headers=whole.headers)

    async def _begin(self, ask: Ask, spelling: ResponseSpelling) -> Begun:
        with own_names():
            begun = await self._chat.begin(ask, self._chat.new_answer_id(spelling), spelling)
        speech = begun.speech
        assert isinstance(speech, ResponseSpeech), "spelled by ResponseSpelling"

        async def kept_before_told() -> AsyncGenerator[AnswerEvent, None]:
            with own_names():
                async with aclosing(begun.events) as events:
                    async for event in events:
                        if isinstance(event, Answered):
                            await self._keep(ask, spelling.body, speech.finished(event))
                        yield event

        return replace(begun, events=kept_before_told())

    async def _keep(self, ask: Ask, body: ResponseBody, response: ResponseObject) -> None:
        """A client that knows a response's id can follow it up, so it is kept first."""
        if body.store is False:
            return
        created_at = response["created_at"]
        items = listed(body.items, response["id"].removeprefix("resp_"))
        await self._parts.responses.put(
            KeptResponse(
                id=response["id"],
                tenant=ask.tenant,
                created_at=created_at,
                input_items=msgspec.json.encode(items),
                body=msgspec.json.encode(response),
                previous_id=body.previous_response_id,
                expires_at=created_at + self._parts.response_days * SECONDS_PER_DAY,
            )
        )


def page_of(
    items: Sequence[Mapping[str, object]], *, after: str | None, limit: int, ascending: bool
) -> InputItemList:
    """Raises InvalidRequest when `after` is none of the items."""
    ordered = [dict(one) for one in (items if ascending else items[::-1])]
    ids = [str(one["id"]) for one in ordered]
    if after is not None and after not in ids:
        raise InvalidRequest(
            f"Invalid value for 'after': no item '{after}'.", param="after", code="invalid_value"
        )
    first = 0 if after is None else ids.index(after) + 1
    data = ordered[first : first + limit]
    return InputItemList(
        object="list",
        data=data,
        first_id=ids[first] if data else None,
        last_id=ids[first + len(data) - 1] if data else None,
        has_more=len(ordered) > first + limit,
    )


def _items_of(kept: KeptResponse) -> list[dict[str, object]]:
    return msgspec.json.decode(kept.input_items, type=list[dict[str, object]])


def _turns_of(kept: KeptResponse) -> list[dict[str, object]]:
    """What a response added to its conversation: what was asked and what was answered."""
    body = msgspec.json.decode(kept.body, type=dict[str, object])
    output = msgspec.convert(body["output"], list[dict[str, object]])
    return _items_of(kept) + output
