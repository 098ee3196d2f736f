"""Chat completions as OpenAI spells them: whole answers and the chunks of a stream, in order."""

from collections.abc import Iterator, Mapping

from gateway import sse
from gateway.answers import (
    Answered,
    AnswerEvent,
    Called,
    ChoiceEnded,
    Facts,
    Opened,
    Progress,
    Said,
)
from gateway.api import Route
from gateway.asks import Ask
from gateway.errors import error_body
from gateway.openai.objects import (
    ChatChunk,
    ChatCompletion,
    ChunkChoice,
    Delta,
    Logprobs,
    annotations_of,
    call_delta,
    choice_object,
    logprobs_object,
    ringway_object,
    usage_object,
)
from gateway.speech import Heard, ProgressComments, Signature


class ChatSpelling:
    """Chat completions, whole and in chunks."""

    endpoint = "chat.completions"
    id_prefix = "chatcmpl-"

    def whole(self, ask: Ask, heard: Heard, signature: Signature) -> Mapping[str, object]:
        end = heard.end
        return ChatCompletion(
            id=signature.id,
            object="chat.completion",
            created=signature.created,
            model=signature.model,
            choices=[choice_object(choice, end.facts) for choice in heard.choices],
            usage=usage_object(end.usage),
            service_tier=signature.service_tier,
            system_fingerprint=signature.system_fingerprint,
            ringway=ringway_object(end.facts, signature.policy_version),
        )

    def speech(self, ask: Ask, signature: Signature) -> "ChatSpeech":
        return ChatSpeech(ChunkWriter(signature, n=ask.n, include_usage=ask.include_usage))


CHAT = ChatSpelling()


class ChatSpeech:
    """Events of one answer to frames: progress as comments, the rest as OpenAI's chunks."""

    def __init__(self, writer: "ChunkWriter") -> None:
        self._writer = writer
        self.signature = writer.signature
        self._progress = ProgressComments()
        self._facts: Facts | None = None
        self._has_begun = False

    def frames(self, event: AnswerEvent) -> Iterator[bytes]:
        match event:
            case Opened():
                self._facts = event.facts
                return
            case Progress():
                yield from self._progress.frames(event)
                return
        yield from self._begin()
        for chunk in self._writer.chunks(event):
            yield sse.data(chunk)
        if isinstance(event, Answered):
            yield sse.DONE

    def failure(self, error: Exception) -> Iterator[bytes]:
        yield sse.data(error_body(error))

    def _begin(self) -> Iterator[bytes]:
        if not self._has_begun:
            assert self._facts is not None, "Opened comes before text"
            self._has_begun = True
            for chunk in self._writer.first(self._facts):
                yield sse.data(chunk)


class ChunkWriter:
    """The chunks of one answer, in OpenAI's order: roles, content, finish, usage if asked for.

    A choice's finish comes when it ends; the last one's, and where annotations are to come
    everybody's, at the end of the answer. Ringway's facts are on the first chunk and on the last.
    """

    def __init__(self, signature: Signature, *, n: int, include_usage: bool) -> None:
        self.signature = signature
        self._include_usage = include_usage
        self._said: list[list[str]] = [[] for _ in range(n)]
        self._unended = n
        self._held: list[ChoiceEnded] = []
        self._cites = True

    def first(self, facts: Facts) -> list[ChatChunk]:
        self._cites = facts.plan.route is not Route.FULL
        chunks = [
            self._chunk(Delta(role="assistant", content="", refusal=None), index)
            for index in range(len(self._said))
        ]
        return [self._with_ringway(chunks[0], facts), *chunks[1:]]

    def chunks(self, event: AnswerEvent) -> list[ChatChunk]:
        match event:
            case Said():
                self._said[event.index].append(event.text)
                delta = Delta(content=event.text)
                return [self._chunk(delta, event.index, logprobs=logprobs_object(event.tokens))]
            case Called():
                return [self._chunk(Delta(tool_calls=[call_delta(event)]), event.index)]
            case ChoiceEnded():
                return self._ended(event)
            case Answered():
                return self._last(event)
        return []

    def _ended(self, event: ChoiceEnded) -> list[ChatChunk]:
        self._unended -= 1
        if self._cites or self._unended == 0:
            self._held.append(event)
            return []
        return [self._chunk(Delta(), event.index, finish_reason=event.reason.value)]

    def _last(self, end: Answered) -> list[ChatChunk]:
        chunks = [self._finish(one, end.facts) for one in self._held]
        if self._include_usage:
            usage = self._object([])
            usage["usage"] = usage_object(end.usage)
            chunks.append(usage)
        return [*chunks[:-1], self._with_ringway(chunks[-1], end.facts)]

    def _finish(self, ended: ChoiceEnded, facts: Facts) -> ChatChunk:
        annotations = annotations_of("".join(self._said[ended.index]), facts.citations)
        delta = Delta(annotations=annotations) if annotations else Delta()
        return self._chunk(delta, ended.index, finish_reason=ended.reason.value)

    def _chunk(
        self,
        delta: Delta,
        index: int,
        *,
        logprobs: Logprobs | None = None,
        finish_reason: str | None = None,
    ) -> ChatChunk:
        choice = ChunkChoice(
            index=index, delta=delta, logprobs=logprobs, finish_reason=finish_reason
        )
        chunk = self._object([choice])
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _object(self, choices: list[ChunkChoice]) -> ChatChunk:
        signature = self.signature
        return ChatChunk(
            id=signature.id,
            object="chat.completion.chunk",
            created=signature.created,
            model=signature.model,
            choices=choices,
            service_tier=signature.service_tier,
            system_fingerprint=signature.system_fingerprint,
        )

    def _with_ringway(self, chunk: ChatChunk, facts: Facts) -> ChatChunk:
        chunk["ringway"] = ringway_object(facts, self.signature.policy_version)
        return chunk
