"""A counted prompt on its way to an answer, and what every route needs to give one.

Knows no HTTP and no wire format.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engines.api import Attention, Engine, GenerateRequest, Reads
from gateway.answers import Answered, Facts, Usage
from gateway.api import CountKind
from gateway.asks import Ask
from gateway.openai.outgoing import chat_body
from gateway.policy import Policy
from gateway.prompt.model_text import ModelText
from gateway.prompt.render import Prompt
from gateway.prompt.segment import Segmented
from gateway.routing import Counts, EngineFacts, Plan
from gateway.stream import Ended, Hearing
from gateway.tools.offer import answer_grammar, hearing_of
from ingest.api import Library


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What routes work with. `monotonic` is the clock of deadlines and timings."""

    engine: Engine
    library: Library
    policy: Policy
    monotonic: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """`prompt` is all that the caller sent, rendered and counted. Times are `monotonic`.

    `escalation` is where a retrieval goes whose evidence is weak; None: it answers all the same.
    """

    request_id: str
    ask: Ask
    plan: Plan
    escalation: Plan | None
    engine_facts: EngineFacts
    segmented: Segmented
    prompt: Prompt
    counts: Counts
    model: ModelText
    started_s: float
    deadline_s: float
    count_s: float
    policy: Policy = field(default_factory=Policy)
    """The one that was in force when the request began; it stays so to its end."""
    reads: Reads = Reads.IDS
    maps: bool = False
    """Whether `hierarchical` is map-reduce on this engine."""
    image_tokens: int = 0
    """What all images are counted as together."""

    def num_tokens(self, prompt: Prompt) -> int:
        """Of any prompt that is made of the request: each holds its images."""
        return len(prompt.ids) + self.image_tokens

    @property
    def hearing(self) -> Hearing | None:
        """How calls are heard in the text; an engine that reads chat tells them by itself."""
        return None if self.reads is Reads.CHAT else hearing_of(self.ask, self.model)

    def request(self, prompt: Prompt, attention: Attention) -> GenerateRequest:
        """An answer whose length the caller left open is bounded by the room beside `prompt`."""
        max_new = self.plan.max_new_tokens
        if self.ask.max_new_tokens is None:
            room = self.engine_facts.context_tokens.get(attention, 0) - self.num_tokens(prompt)
            max_new = max(1, min(max_new, room))
        is_chat = self.reads is Reads.CHAT
        return GenerateRequest(
            request_id=self.request_id,
            prompt_ids=prompt.ids,
            max_new_tokens=max_new,
            attention=attention,
            question_start=prompt.question_start,
            document_starts=prompt.document_starts,
            sampling=self.ask.sampling,
            stop_ids=self.model.stop_ids,
            deadline_s=self.deadline_s,
            service_tier=self.ask.service_tier,
            cache_key=f"{self.ask.tenant}/{self.ask.cache_key}",
            n=self.ask.n,
            grammar=None if is_chat else answer_grammar(self.ask, self.model),
            chat=chat_body(prompt.messages, self.ask) if is_chat else None,
        )

    def facts(
        self, *, tokens_read: int, coverage: float | None, evidence: float | None = None
    ) -> Facts:
        return Facts(
            plan=self.plan,
            prompt_tokens=self.num_tokens(self.prompt),
            tokens_read=tokens_read,
            coverage=coverage,
            evidence=evidence,
            count_kind=CountKind.ESTIMATED if self.image_tokens else self.model.count_kind,
        )


def answered(ended: Ended, facts: Facts) -> Answered:
    finish = ended.finish
    timing = dict(facts.timing_ms)
    if finish is not None:
        timing["queue"] = finish.queue_s * 1000
        timing["prefill"] = finish.prefill_s * 1000
        timing["decode"] = finish.decode_s * 1000
    return Answered(
        reason=ended.reason,
        usage=Usage(
            prompt_tokens=facts.tokens_read if finish is None else finish.prompt_tokens,
            cached_tokens=0 if finish is None else finish.cached_tokens,
            completion_tokens=(
                ended.completion_tokens if finish is None else finish.completion_tokens
            ),
            reasoning_tokens=0 if finish is None else finish.reasoning_tokens,
        ),
        facts=replace(facts, timing_ms=timing),
    )
