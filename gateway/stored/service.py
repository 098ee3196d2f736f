"""Chat completions that are kept: answered as any chat, kept before the client hears the end."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import msgspec
from starlette.responses import Response
from starlette.types import Receive

from gateway.answers import Answered, AnswerEvent
from gateway.asks import Ask
from gateway.chat import ChatService
from gateway.openai.answers import CHAT, ChatSpeech
from gateway.openai.chat import ChatBody, to_ask
from gateway.openai.stored import kept_messages
from gateway.parts import Parts
from gateway.replies import Begun, json_response
from gateway.speech import Ear, Heard, Signature
from gateway.stored.api import KeptChat

SECONDS_PER_DAY = 86_400


class StoredChats:
    def __init__(self, parts: Parts, chat: ChatService) -> None:
        self._parts = parts
        self._chat = chat

    async def reply(self, body: ChatBody, receive: Receive, *, tenant: str) -> Response:
        """The reply, whole or as a stream that plans when it is sent. Raises what both raise."""
        ask = to_ask(body, seed=self._parts.new_seed())
        if not body.store:
            return await self._chat.reply(ask, receive)

        async def begin() -> Begun:
            return await self._begin(ask, body, tenant)

        whole = None if ask.stream else self._whole(ask, body, tenant)
        return await self._chat.served(CHAT.endpoint, receive, begin, whole)

    async def _whole(self, ask: Ask, body: ChatBody, tenant: str) -> Response:
        whole = await self._chat.whole(ask, self._chat.new_answer_id(CHAT))
        told = await self._kept(ask, body, tenant, whole.heard, whole.signature)
        return json_response(msgspec.Raw(told), headers=whole.headers)

    async def _begin(self, ask: Ask, body: ChatBody, tenant: str) -> Begun:
        begun = await self._chat.begin(ask, self._chat.new_answer_id(CHAT), CHAT)
        speech = begun.speech
        assert isinstance(speech, ChatSpeech), "spelled by CHAT"

        async def kept_before_told() -> AsyncGenerator[AnswerEvent, None]:
            ear = Ear()
            async with aclosing(begun.events) as events:
                async for event in events:
                    if isinstance(event, Answered):
                        heard = ear.heard(event)
                        await self._kept(ask, body, tenant, heard, speech.signature)
                    ear.take(event)
                    yield event

        return replace(begun, events=kept_before_told())

    async def _kept(
        self, ask: Ask, body: ChatBody, tenant: str, heard: Heard, signature: Signature
    ) -> bytes:
        told = msgspec.json.encode(CHAT.whole(ask, heard, signature))
        await self._parts.chats.put(
            KeptChat(
                id=signature.id,
                tenant=tenant,
                model=signature.model,
                created_at=signature.created,
                messages=msgspec.json.encode(kept_messages(body, signature.id)),
                body=told,
                metadata=body.metadata or {},
                expires_at=signature.created + self._parts.response_days * SECONDS_PER_DAY,
            )
        )
        return told
