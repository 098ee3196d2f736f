"""OpenAI's chat completion objects as they go over the wire, whole and in chunks.

Knows how answers are spelled; not how they come about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from gateway.answers import Answered, Facts, Said, SpelledToken, Usage
from gateway.citations import Citation, said_at
from gateway.prompt.segment import SourceKind


class TopLogprob(TypedDict):
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class Logprobs(TypedDict):
    content: list[TokenLogprob]
    refusal: None


class Annotation(TypedDict):
    """A citation of a file as OpenAI's `file_search` has it; `index` is a character of the
    answer, the one behind the citation's marker."""

    type: Literal["file_citation"]
    file_id: str
    filename: str
    index: int


class AnswerMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    refusal: None
    annotations: list[Annotation]


class Choice(TypedDict):
    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: str


class PromptDetails(TypedDict):
    cached_tokens: int
    audio_tokens: int


class CompletionDetails(TypedDict):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class UsageObject(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class CitationObject(TypedDict):
    """Exactly one of the ids is set. `quote` is characters [start, stop) of what it names."""

    file_id: str | None
    document_id: str | None
    filename: str | None
    start: int
    stop: int
    quote: str
    score: float


class RingwayObject(TypedDict):
    route: str
    requested: str
    reason: str
    policy_version: str
    prompt_tokens: int
    tokens_read: int
    coverage: float | None
    recall: float | None
    evidence: float | None
    fallback_from: str | None
    escalated_from: str | None
    citations: list[CitationObject]
    timing_ms: dict[str, float]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: UsageObject
    service_tier: str
    system_fingerprint: str
    ringway: RingwayObject


class Delta(TypedDict):
    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    refusal: NotRequired[None]
    annotations: NotRequired[list[Annotation]]


class ChunkChoice(TypedDict):
    index: int
    delta: Delta
    logprobs: Logprobs | None
    finish_reason: str | None


class ChatChunk(TypedDict):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    service_tier: str
    system_fingerprint: str
    usage: NotRequired[UsageObject | None]
    ringway: NotRequired[RingwayObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What every object of one answer carries."""

    id: str
    created: int
    model: str
    service_tier: str
    system_fingerprint: str
    policy_version: str

    def completion(self, said: Sequence[Said], end: Answered) -> ChatCompletion:
        text = "".join(one.text for one in said)
        message = AnswerMessage(
            role="assistant",
            content=text,
            refusal=None,
            annotations=annotations_of(text, end.facts.citations),
        )
        tokens = [token for one in said for token in one.tokens]
        choice = Choice(
            index=0, message=message, logprobs=_logprobs(tokens), finish_reason=end.reason.value
        )
        return ChatCompletion(
            id=self.id,
            object="chat.completion",
            created=self.created,
            model=self.model,
            choices=[choice],
            usage=usage_object(end.usage),
            service_tier=self.service_tier,
            system_fingerprint=self.system_fingerprint,
            ringway=ringway_object(end.facts, self.policy_version),
        )

    def chunk(self, choices: list[ChunkChoice]) -> ChatChunk:
        return ChatChunk(
            id=self.id,
            object="chat.completion.chunk",
            created=self.created,
            model=self.model,
            choices=choices,
            service_tier=self.service_tier,
            system_fingerprint=self.system_fingerprint,
        )


class ChunkWriter:
    """The chunks of one answer, in OpenAI's order: role, content, finish, usage if asked for.

    Ringway's facts are on the first and on the last; annotations come with the finish.
    """

    def __init__(self, signature: Signature, *, include_usage: bool) -> None:
        self._signature = signature
        self._include_usage = include_usage
        self._said: list[str] = []

    def first(self, facts: Facts) -> ChatChunk:
        delta = Delta(role="assistant", content="", refusal=None)
        return self._with_ringway(self._chunk(delta), facts)

    def said(self, said: Said) -> ChatChunk:
        self._said.append(said.text)
        return self._chunk(Delta(content=said.text), logprobs=_logprobs(said.tokens))

    def last(self, end: Answered) -> list[ChatChunk]:
        annotations = annotations_of("".join(self._said), end.facts.citations)
        delta = Delta(annotations=annotations) if annotations else Delta()
        finish = self._chunk(delta, finish_reason=end.reason.value)
        if not self._include_usage:
            return [self._with_ringway(finish, end.facts)]
        usage = self._signature.chunk([])
        usage["usage"] = usage_object(end.usage)
        return [finish, self._with_ringway(usage, end.facts)]

    def _chunk(
        self, delta: Delta, *, logprobs: Logprobs | None = None, finish_reason: str | None = None
    ) -> ChatChunk:
        choice = ChunkChoice(index=0, delta=delta, logprobs=logprobs, finish_reason=finish_reason)
        chunk = self._signature.chunk([choice])
        if self._include_usage:
            chunk["usage"] = None
        return chunk

    def _with_ringway(self, chunk: ChatChunk, facts: Facts) -> ChatChunk:
        chunk["ringway"] = ringway_object(facts, self._signature.policy_version)
        return chunk


def usage_object(usage: Usage) -> UsageObject:
    return UsageObject(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cached_tokens, audio_tokens=0),
        completion_tokens_details=CompletionDetails(
            reasoning_tokens=0,
            audio_tokens=0,
            accepted_prediction_tokens=0,
            rejected_prediction_tokens=0,
        ),
    )


def ringway_object(facts: Facts, policy_version: str) -> RingwayObject:
    plan = facts.plan
    return RingwayObject(
        route=plan.route.value,
        requested=plan.requested.value,
        reason=plan.reason,
        policy_version=policy_version,
        prompt_tokens=facts.prompt_tokens,
        tokens_read=facts.tokens_read,
        coverage=None if facts.coverage is None else round(facts.coverage, 6),
        recall=None if facts.recall is None else round(facts.recall, 6),
        evidence=None if facts.evidence is None else round(facts.evidence, 6),
        fallback_from=plan.fallback_from.value if plan.fallback_from else None,
        escalated_from=plan.escalated_from.value if plan.escalated_from else None,
        citations=[_citation_object(one) for one in facts.citations],
        timing_ms=dict(facts.timing_ms),
    )


def annotations_of(text: str, citations: Sequence[Citation]) -> list[Annotation]:
    """Of the citations, those of files."""
    return [
        Annotation(
            type="file_citation",
            file_id=one.source.id,
            filename=one.source.name,
            index=said_at(text, one),
        )
        for one in citations
        if one.source.kind is SourceKind.FILE
    ]


def _citation_object(citation: Citation) -> CitationObject:
    source = citation.source
    is_file = source.kind is SourceKind.FILE
    return CitationObject(
        file_id=source.id if is_file else None,
        document_id=None if is_file else source.id,
        filename=source.name if is_file else None,
        start=citation.start,
        stop=citation.stop,
        quote=citation.quote,
        score=round(citation.score, 6),
    )


def _logprobs(tokens: Sequence[SpelledToken]) -> Logprobs | None:
    if not tokens:
        return None
    return Logprobs(content=[_token_logprob(token) for token in tokens], refusal=None)


def _token_logprob(token: SpelledToken) -> TokenLogprob:
    return TokenLogprob(
        token=token.text,
        bytes=list(token.token_bytes),
        logprob=token.logprob,
        top_logprobs=[
            TopLogprob(token=one.text, bytes=list(one.token_bytes), logprob=one.logprob)
            for one in token.top
        ],
    )
