"""Engine events to text: relays, detokenises, stops. Knows ids and text, no routes and no wire.

However a stream ends, the engine has let go of its request.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from engines.api import (
    AttendedEvent,
    Engine,
    EngineLost,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    ProgressEvent,
    TokenEvent,
)
from gateway.answers import Progress, Said, SpelledToken
from gateway.prompt.detokenize import StopScanner, TokenSpeller
from gateway.prompt.model_text import ModelText


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`finish` is None when a stop string ended the answer before the engine did."""

    reason: FinishReason
    completion_tokens: int
    finish: FinishEvent | None


TextEvent = Progress | AttendedEvent | Said | Ended


async def speak(
    engine: Engine, request: GenerateRequest, model: ModelText, stops: tuple[str, ...]
) -> AsyncGenerator[TextEvent, None]:
    """Yield the engine's answer as text; the last event is Ended. Raises what `generate` raises."""
    voice = _Voice(model, stops, spells=request.sampling.top_logprobs is not None)
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case ProgressEvent():
                    yield Progress(event.done_tokens, event.total_tokens)
                case AttendedEvent():
                    yield event
                case TokenEvent():
                    said = voice.token(event)
                    if said is not None:
                        yield said
                    if voice.stopped:
                        yield voice.ended(FinishReason.STOP, None)
                        return
                case FinishEvent():
                    for last in voice.close():
                        yield last
                    yield voice.ended(FinishReason.STOP if voice.stopped else event.reason, event)
                    return
    raise EngineLost("the engine's answer ended without a finish")


class _Voice:
    def __init__(self, model: ModelText, stops: tuple[str, ...], *, spells: bool) -> None:
        self._detokenizer = model.detokenizer()
        self._scanner = StopScanner(stops)
        self._speller = model.speller if spells else None
        self._waiting: list[SpelledToken] = []
        self._num_tokens = 0

    @property
    def stopped(self) -> bool:
        return self._scanner.stopped

    def token(self, event: TokenEvent) -> Said | None:
        self._num_tokens += 1
        if self._speller is not None and event.logprob is not None:
            self._waiting.append(_spelled(event, self._speller))
        text = self._scanner.push(self._detokenizer.push(event.id))
        return self._say(text) if text or (self.stopped and self._waiting) else None

    def close(self) -> list[Said]:
        text = self._scanner.push(self._detokenizer.flush()) + self._scanner.flush()
        return [self._say(text)] if text or self._waiting else []

    def ended(self, reason: FinishReason, finish: FinishEvent | None) -> Ended:
        return Ended(reason=reason, completion_tokens=self._num_tokens, finish=finish)

    def _say(self, text: str) -> Said:
        tokens, self._waiting = tuple(self._waiting), []
        return Said(text, tokens)


def _spelled(event: TokenEvent, speller: TokenSpeller) -> SpelledToken:
    def spell(token_id: int, logprob: float) -> SpelledToken:
        text, token_bytes = speller.spell(token_id)
        return SpelledToken(text, tuple(token_bytes), logprob)

    own = spell(event.id, event.logprob or 0.0)
    top = tuple(spell(one.id, one.logprob) for one in event.top_logprobs)
    return SpelledToken(own.text, own.token_bytes, own.logprob, top)
