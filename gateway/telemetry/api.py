"""What the gateway tells of a request's course, to whoever traces; nothing when nobody does.

Knows no tracing library. Attributes are counts, durations and short names, never text.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

Attribute = str | int | float | bool | Sequence[str] | Sequence[float]
Attributes = Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened inside a span. Times are those of the monotonic clock."""

    name: str
    at_s: float
    attributes: Attributes


class Trace(Protocol):
    """The span of one HTTP request, and those inside it."""

    @property
    def traceparent(self) -> str:
        """W3C's header for whoever works for this request."""
        ...

    def name(self, name: str) -> None: ...

    def tell(self, attributes: Attributes) -> None: ...

    def span(
        self,
        name: str,
        start_s: float,
        end_s: float,
        attributes: Attributes,
        marks: Sequence[Mark] = (),
    ) -> None:
        """A span that is over, inside the request's. Times are monotonic."""
        ...

    def end(self, *, status: int, error: str) -> None:
        """`error` is an error's code or class, empty for none."""
        ...


class Tracing(Protocol):
    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> Trace:
        """A trace that goes on where the caller's `traceparent` left off."""
        ...


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace of the request that is being served; None where nobody traces."""
