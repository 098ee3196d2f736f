"""Text completions as OpenAI spells them, whole and in chunks; knows no route and no engine."""

from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

from gateway import sse
from gateway.answers import Answered, AnswerEvent, ChoiceEnded, Facts, Opened, Progress, Said
from gateway.answers import SpelledToken as Token
from gateway.asks import Ask
from gateway.errors import error_body
from gateway.openai.objects import RingwayObject, UsageObject, ringway_object, usage_object
from gateway.speech import Heard, HeardChoice, ProgressComments, Signature


class TextLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: str | None


class TextCompletion(TypedDict):
    """A chunk of a stream has the same shape; Ringway's facts are on the first and the last, and
    with several prompts they are those of the first."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    system_fingerprint: str
    usage: NotRequired[UsageObject | None]
    ringway: NotRequired[RingwayObject]


class CompletionSpelling:
    """`echoes` has a text per choice: the prompt where it is to be said first, or nothing."""

    endpoint = "completions"
    id_prefix = "cmpl-"

    def __init__(self, echoes: Sequence[str] = ()) -> None:
        self._echoes = echoes

    def whole(self, ask: Ask, heard: Heard, signature: Signature) -> Mapping[str, object]:
        body = _object(signature, [self._choice(choice) for choice in heard.choices])
        body["usage"] = usage_object(heard.end.usage)
        body["ringway"] = ringway_object(heard.end.facts, signature.policy_version)
        return body

    def speech(self, ask: Ask, signature: Signature) -> "CompletionSpeech":
        return CompletionSpeech(signature, self._echoes, include_usage=ask.include_usage)

    def _choice(self, heard: HeardChoice) -> TextChoice:
        echo = self._echoes[heard.index]
        return TextChoice(
            index=heard.index,
            text=echo + heard.text,
            logprobs=TextLogs().of(heard.tokens),
            finish_reason=heard.reason,
        )


class CompletionSpeech:
    """Every choice's finish comes when it ends; the last one's carries Ringway's facts."""

    def __init__(self, signature: Signature, echoes: Sequence[str], *, include_usage: bool) -> None:
        self._signature = signature
        self._echoes = echoes
        self._include_usage = include_usage
        self._progress = ProgressComments()
        self._facts: Facts | None = None
        self._logs = [TextLogs() for _ in echoes]
        self._unended = len(echoes)
        self._last: ChoiceEnded | None = None
        self._is_first = True

    def frames(self, event: AnswerEvent) -> Iterator[bytes]:
        match event:
            case Opened():
                self._facts = event.facts
                for index, echo in enumerate(self._echoes):
                    if echo:
                        yield self._frame(_choice(index, echo))
            case Progress():
                yield from self._progress.frames(event)
            case Said():
                logprobs = self._logs[event.index].of(event.tokens)
                yield self._frame(_choice(event.index, event.text, logprobs))
            case ChoiceEnded():
                yield from self._ended(event)
            case Answered():
                yield from self._end(event)

    def failure(self, error: Exception) -> Iterator[bytes]:
        yield sse.data(error_body(error))

    def _ended(self, event: ChoiceEnded) -> Iterator[bytes]:
        self._unended -= 1
        if self._unended:
            yield self._frame(_choice(event.index, "", reason=event.reason.value))
        else:
            self._last = event

    def _end(self, event: Answered) -> Iterator[bytes]:
        assert self._last is not None, "every choice ends before the answer"
        finish = self._chunk([_choice(self._last.index, "", reason=self._last.reason.value)])
        chunks = [finish]
        if self._include_usage:
            usage = _object(self._signature, [])
            usage["usage"] = usage_object(event.usage)
            chunks.append(usage)
        chunks[-1]["ringway"] = ringway_object(event.facts, self._signature.policy_version)
        for chunk in chunks:
            yield sse.data(chunk)
        yield sse.DONE

    def _frame(self, choice: TextChoice) -> bytes:
        return sse.data(self._chunk([choice]))

    def _chunk(self, choices: list[TextChoice]) -> TextCompletion:
        chunk = _object(self._signature, choices)
        if self._include_usage:
            chunk["usage"] = None
        if self._is_first and self._facts is not None:
            self._is_first = False
            chunk["ringway"] = ringway_object(self._facts, self._signature.policy_version)
        return chunk


class TextLogs:
    """Logprobs of one choice, piece by piece. A token's place in the text is the character that
    it begins or goes on with."""

    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("ignore")
        self._num_chars = 0

    def of(self, tokens: Sequence[Token]) -> TextLogprobs | None:
        if not tokens:
            return None
        return TextLogprobs(
            tokens=[token.text for token in tokens],
            token_logprobs=[token.logprob for token in tokens],
            top_logprobs=[{one.text: one.logprob for one in token.top} for token in tokens],
            text_offset=[self._pass(token) for token in tokens],
        )

    def _pass(self, token: Token) -> int:
        start = self._num_chars
        self._num_chars += len(self._decoder.decode(bytes(token.token_bytes)))
        return start


def _object(signature: Signature, choices: list[TextChoice]) -> TextCompletion:
    return TextCompletion(
        id=signature.id,
        object="text_completion",
        created=signature.created,
        model=signature.model,
        choices=choices,
        system_fingerprint=signature.system_fingerprint,
    )


def _choice(
    index: int, text: str, logprobs: TextLogprobs | None = None, *, reason: str | None = None
) -> TextChoice:
    return TextChoice(index=index, text=text, logprobs=logprobs, finish_reason=reason)
