"""The demo's table: knows how an answer is judged and shown, not how it was got."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from gateway.api import Route
from gateway.cli.demo_client import Answer, Citation, Refused
from ingest.synth.api import Question, states

MAX_CITATIONS_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one route made of one question. `number` is None when it stands for all of them.

    `document` is the text that was uploaded as `file_id`; citations are checked against it.
    """

    number: int | None
    route: Route
    question: Question
    outcome: Answer | Refused
    document: str
    file_id: str

    @property
    def answer(self) -> Answer | None:
        return self.outcome if isinstance(self.outcome, Answer) else None

    @property
    def prompt_tokens(self) -> int | None:
        return self.answer.facts.prompt_tokens if self.answer else None

    @property
    def is_found(self) -> bool:
        return self.answer is not None and states(self.answer.text, self.question)

    @property
    def is_cited_right(self) -> bool:
        """Whether some citation holds the planted answer, and all of them are verbatim."""
        if self.answer is None:
            return False
        citations = self.answer.facts.citations
        return all(map(self.is_verbatim, citations)) and any(map(self.is_right, citations))

    def is_verbatim(self, citation: Citation) -> bool:
        """The quote is exactly what the uploaded document says at these offsets."""
        is_inside = 0 <= citation.start < citation.stop <= len(self.document)
        said = self.document[citation.start : citation.stop]
        return citation.file_id == self.file_id and is_inside and said == citation.quote

    def is_right(self, citation: Citation) -> bool:
        """Verbatim, and it covers the answer inside the planted sentence."""
        planted = self.question.place
        at = planted.start + planted.sentence.index(self.question.answer)
        covers = citation.start <= at and at + len(self.question.answer) <= citation.stop
        return covers and self.is_verbatim(citation)


def table(rows: Sequence[Row], *, is_terminal: bool) -> Table:
    grid = Table(box=box.ROUNDED if is_terminal else box.ASCII, show_lines=True)
    for name in ("", "route", "reason"):
        grid.add_column(name, overflow="fold")
    for name in ("read", "cover", "s"):
        grid.add_column(name, justify="right", no_wrap=True)
    grid.add_column("citations", overflow="fold", min_width=24)
    grid.add_column("answer", overflow="fold", min_width=24)
    grid.add_column("found", no_wrap=True)
    for row in rows:
        grid.add_row(*cells(row))
    return grid


def cells(row: Row) -> tuple[Text, ...]:
    name = "all" if row.number is None else f"Q{row.number}"
    if isinstance(row.outcome, Refused):
        blank = ("-",) * 3
        shown = (name, row.route.value, refusal_line(row.route, row.outcome), *blank, "-", "-")
        return (*map(Text, shown), Text("no", style="yellow"))
    facts = row.outcome.facts
    route = facts.route if facts.fallback_from is None else f"{facts.route} <- {row.route}"
    plain = (
        name,
        route,
        facts.reason,
        "-" if facts.tokens_read is None else f"{facts.tokens_read:,}",
        "-" if facts.coverage is None else percent(facts.coverage),
        f"{row.outcome.seconds:.1f}",
    )
    found = Text("yes", style="green") if row.is_found else Text("no", style="red")
    return (*map(Text, plain), citations(row), Text(row.outcome.text.strip()), found)


def refusal_line(route: Route, refused: Refused) -> str:
    """The numbers where there are some: 'full: 60,112 tokens > 8,192'."""
    if refused.num_tokens is not None and refused.limit is not None:
        return f"{route}: {refused.num_tokens:,} tokens > {refused.limit:,}"
    return f"{route}: {refused.message}"


def percent(share: float) -> str:
    """Small shares keep a digit, so that reading a little is not shown as nothing."""
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def citations(row: Row) -> Text:
    """The first few, right ones first, each with its judgement; then how many more there are."""
    assert isinstance(row.outcome, Answer)
    cited = sorted(row.outcome.facts.citations, key=lambda one: not row.is_right(one))
    lines = Text()
    for one in cited[:MAX_CITATIONS_SHOWN]:
        word, style = judgement(row, one)
        lines.append(f"{one.filename or one.file_id}:{one.start}-{one.stop} ")
        lines.append(f"{word}\n", style=style)
    if more := len(cited) - MAX_CITATIONS_SHOWN:
        lines.append(f"and {more} more" if more > 0 else "")
    lines.rstrip()
    return lines if cited else Text("-")


def judgement(row: Row, citation: Citation) -> tuple[str, str]:
    if row.is_right(citation):
        return "right", "green"
    if row.is_verbatim(citation):
        return "elsewhere", "dim"
    return "wrong", "red"
