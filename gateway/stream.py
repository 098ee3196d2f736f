"""Engine events to text and tool calls: relays, detokenises, stops. Knows no routes and no wire.

However a stream ends, the engine has let go of its request.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from engines.api import (
    AnswerEndEvent,
    AttendedEvent,
    Engine,
    EngineLost,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    ProgressEvent,
    TextEvent,
    TextLogprob,
    TokenEvent,
    ToolCallEvent,
)
from gateway.answers import Called, ChoiceEnded, Progress, Said, SpelledToken
from gateway.prompt.detokenize import StopScanner, TokenSpeller
from gateway.prompt.model_text import ModelText
from gateway.tools.parser import CallParser, CallPiece
from gateway.tools.syntax import CallSyntax, new_call_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`finish` is None when stop strings ended the answer before the engine did; `reason` is that
    of the choice that ended last."""

    reason: FinishReason
    completion_tokens: int
    finish: FinishEvent | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """How to hear calls of the tools `names` in the text of an answer. `live`: a grammar vouches
    for them. Not `parallel`: the answer ends with its first call."""

    syntax: CallSyntax
    names: frozenset[str]
    live: bool = False
    parallel: bool = True


Spoken = Progress | AttendedEvent | Said | Called | ChoiceEnded | Ended


async def speak(
    engine: Engine,
    request: GenerateRequest,
    model: ModelText,
    stops: tuple[str, ...],
    hearing: Hearing | None = None,
) -> AsyncGenerator[Spoken, None]:
    """Yield the engine's answer as text and calls; every choice ends with a ChoiceEnded, and the
    last event is Ended. Raises what `generate` raises."""
    choir = _Choir(request, model, stops, hearing)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            for spoken in choir.hear(event):
                yield spoken
                if isinstance(spoken, Ended):
                    return
    raise EngineLost("the engine's answer ended without a finish")


class _Choir:
    """The choices of one request, each with its voice."""

    def __init__(
        self,
        request: GenerateRequest,
        model: ModelText,
        stops: tuple[str, ...],
        hearing: Hearing | None,
    ) -> None:
        self._voices = [_Voice(i, request, model, stops, hearing) for i in range(request.n)]

    def hear(self, event: Event) -> Iterator[Spoken]:
        match event:
            case ProgressEvent():
                yield Progress(event.done_tokens, event.total_tokens)
            case AttendedEvent():
                yield event
            case AnswerEndEvent():
                yield from self._voices[event.index].end(event.reason)
            case FinishEvent():
                for voice in self._voices:
                    yield from voice.end(event.reason)
                yield self._ended(event.reason, event)
            case _:
                voice = self._voices[event.index]
                yield from voice.hear(event)
                if voice.stopped and all(one.ended for one in self._voices):
                    yield self._ended(FinishReason.STOP, None)

    def _ended(self, reason: FinishReason, finish: FinishEvent | None) -> Ended:
        last = self._voices[0].reason or reason if len(self._voices) == 1 else reason
        num_tokens = sum(voice.num_tokens for voice in self._voices)
        return Ended(reason=last, completion_tokens=num_tokens, finish=finish)


class _Voice:
    """One choice: it falls silent with its end, whatever the engine still says."""

    def __init__(
        self,
        index: int,
        request: GenerateRequest,
        model: ModelText,
        stops: tuple[str, ...],
        hearing: Hearing | None,
    ) -> None:
        self.reason: FinishReason | None = None
        self.stopped = False
        self.num_tokens = 0
        self._index = index
        self._answer_id = request.request_id
        self._detokenizer = model.detokenizer(hearing.syntax.marks if hearing else ())
        self._scanner = StopScanner(stops)
        self._speller = model.speller if request.sampling.top_logprobs is not None else None
        self._waiting: list[SpelledToken] = []
        self._hearing = hearing
        self._parser = _parser(hearing)
        self._has_called = False

    @property
    def ended(self) -> bool:
        return self.reason is not None

    def hear(self, event: TokenEvent | TextEvent | ToolCallEvent) -> Iterator[Spoken]:
        if self.ended:
            return
        match event:
            case TokenEvent():
                self.num_tokens += 1
                if self._speller is not None and event.logprob is not None:
                    self._waiting.append(_spelled(event, self._speller))
                text = self._detokenizer.push(event.id)
            case TextEvent():
                self.num_tokens += max(1, len(event.tokens))
                self._waiting += [_told(one) for one in event.tokens]
                text = event.text
            case ToolCallEvent():
                yield self._passed_on(event)
                return
        yield from self._say(self._scanner.push(text))
        if self._scanner.stopped or self._has_all_calls():
            self.stopped = True
            yield from self.end(FinishReason.STOP)

    def end(self, reason: FinishReason) -> Iterator[Spoken]:
        """The rest of what was heard, and why it ends here. Only the first end counts."""
        if self.ended:
            return
        if not self.stopped:
            yield from self._say(self._scanner.push(self._detokenizer.flush()))
            yield from self._say(self._scanner.flush())
            if self._scanner.stopped:
                reason = FinishReason.STOP
        if self._parser is not None:
            yield from self._utter(self._parser.close())
        if self._waiting:
            yield self._said("")
        if self._has_called and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        self.reason = reason
        yield ChoiceEnded(index=self._index, reason=reason)

    def _has_all_calls(self) -> bool:
        hearing, parser = self._hearing, self._parser
        if hearing is None or parser is None or hearing.parallel:
            return False
        return parser.num_calls > 0

    def _say(self, text: str) -> Iterator[Spoken]:
        if not text:
            return
        if self._parser is None:
            yield self._said(text)
        else:
            yield from self._utter(self._parser.push(text))

    def _utter(self, parts: list[str | CallPiece]) -> Iterator[Spoken]:
        for part in parts:
            yield self._said(part) if isinstance(part, str) else self._called(part)

    def _said(self, text: str) -> Said:
        tokens, self._waiting = tuple(self._waiting), []
        return Said(text, tokens, self._index)

    def _called(self, piece: CallPiece) -> Called:
        assert self._hearing is not None, "calls are heard by a hearing"
        self._has_called = True
        call_id = None
        if piece.name is not None:
            call_id = new_call_id(self._answer_id, self._index, piece.call, self._hearing.syntax)
        return Called(
            call=piece.call,
            arguments=piece.arguments,
            id=call_id,
            name=piece.name,
            index=self._index,
        )

    def _passed_on(self, event: ToolCallEvent) -> Called:
        self._has_called = True
        return Called(
            call=event.call,
            arguments=event.arguments,
            id=event.id,
            name=event.name,
            index=self._index,
        )


def _parser(hearing: Hearing | None) -> CallParser | None:
    if hearing is None:
        return None
    return CallParser(hearing.syntax, hearing.names, live=hearing.live)


def _spelled(event: TokenEvent, speller: TokenSpeller) -> SpelledToken:
    def spell(token_id: int, logprob: float) -> SpelledToken:
        text, token_bytes = speller.spell(token_id)
        return SpelledToken(text, tuple(token_bytes), logprob)

    own = spell(event.id, event.logprob or 0.0)
    top = tuple(spell(one.id, one.logprob) for one in event.top_logprobs)
    return SpelledToken(own.text, own.token_bytes, own.logprob, top)


def _told(token: TextLogprob) -> SpelledToken:
    top = tuple(_told(one) for one in token.top)
    return SpelledToken(token.text, token.token_bytes, token.logprob, top)
