"""What happens while a prompt is answered, as values: the gateway's inner language.

Knows no wire format. Every answer yields one Opened, any number of Progress, Said and Called,
a ChoiceEnded for each of its choices, and ends with one Answered; when a route is given up, a
further Opened follows. `index` tells the choices apart: several answers to one prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.api import FinishReason
from gateway.api import CountKind
from gateway.citations import Citation
from gateway.routing import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPassage:
    """A passage of a file that a vector store gave, whether or not it was read."""

    file_id: str
    filename: str
    score: float
    text: str


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
    method: str | None = None
    """How the route was taken when not as its name says: map_reduce."""
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    count_kind: CountKind = CountKind.EXACT
    query: str = ""
    found: tuple[FoundPassage, ...] = ()
    """What was searched for, and what the vector stores gave."""


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
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A piece of the choice's tool call number `call`: `id` and `name` come with the first, the
    `arguments` of all are to be joined."""

    call: int
    arguments: str
    id: str | None = None
    name: str | None = None
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEnded:
    index: int
    reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Exact counts of what the engine read and wrote."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """`reason` is that of the choice that ended last."""

    reason: FinishReason
    usage: Usage
    facts: Facts


AnswerEvent = Opened | Progress | Said | Called | ChoiceEnded | Answered
