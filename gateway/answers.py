"""What happens while a prompt is answered, as values: the gateway's inner language.

Knows no wire format. Every answer yields one Opened, any number of Progress and Said,
and ends with one Answered; when a route is given up, a further Opened follows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.api import FinishReason
from gateway.citations import Citation
from gateway.routing import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """How the answer came about. `tokens_read` by the model; `coverage` is their share of the
    context, None when that was not counted. `recall` is the share of the question's attention
    that hierarchical attention kept exactly."""

    plan: Plan
    prompt_tokens: int
    tokens_read: int
    coverage: float | None
    recall: float | None = None
    evidence: float | None = None
    citations: tuple[Citation, ...] = ()
    timing_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Opened:
    """The route is settled and its prompt is on the way to the engine."""

    facts: Facts


@dataclass(frozen=True, slots=True)
class Progress:
    done_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class SpelledToken:
    """A token for logprobs: its text, bytes and log probability, and the likeliest beside it."""

    text: str
    token_bytes: tuple[int, ...]
    logprob: float
    top: tuple["SpelledToken", ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """More of the answer. `text` may be empty when only logprobs are due."""

    text: str
    tokens: tuple[SpelledToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Exact counts of what the engine read and wrote."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    reason: FinishReason
    usage: Usage
    facts: Facts


AnswerEvent = Opened | Progress | Said | Answered
