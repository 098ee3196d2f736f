"""The report's tables: a row per way and length, by depth, and answers in the model's words."""

from collections.abc import Iterator
from html import escape

from gateway.evaluation.charts import MARKS, mark
from gateway.evaluation.needles import Task
from gateway.evaluation.page_style import heat
from gateway.evaluation.plan import Arm
from gateway.evaluation.results import Cell, Result

COLUMNS = (
    "way",
    "length",
    "answers",
    "accuracy",
    "95 % interval",
    "partial",
    "refused",
    "failed",
    "not asked",
    "tokens read",
    "first token",
    "total",
    "prefill",
)


def style_of(arm: Arm) -> int:
    return list(Arm).index(arm) % len(MARKS)


def cells(result: Result, arm: Arm, task: Task | None) -> Iterator[tuple[int, Cell]]:
    """With the place of their length."""
    for i, length in enumerate(result.lengths):
        cell = result.cell(arm, task, length)
        if cell is not None:
            yield i, cell


def table(result: Result, task: Task | None) -> str:
    rows = (
        _row(cell, is_first=i == 0)
        for arm in result.plan.arms
        for i, cell in cells(result, arm, task)
    )
    return _table(COLUMNS, "".join(rows), "wide")


def _row(cell: Cell, *, is_first: bool) -> str:
    cost = cell.cost
    values = (
        _plain(_way(cell.arm), tokens(cell.length), str(cell.answered)),
        _shaded(cell.accuracy),
        _plain(
            f"{cell.low:.0%} to {cell.high:.0%}" if cell.answered else "-",
            share(cell.partial),
            *(str(count or "-") for count in (cell.refused, cell.failed, cell.not_asked)),
            number(cost.tokens_read, "{:,.0f}"),
            number(cost.first_token_s, "{:,.2f} s"),
            number(cost.total_s, "{:,.2f} s"),
            number(cost.prefill_ms, "{:,.0f} ms"),
        ),
    )
    return f"{_begun(is_first)}{''.join(values)}</tr>"


def by_depth(result: Result) -> str:
    depths = result.plan.num_depths
    places = [f"{i / (depths - 1):.0%}" if depths > 1 else "50%" for i in range(depths)]
    found = {(c.arm, c.length, c.depth): c.accuracy for c in result.depths}
    rows = "".join(
        f"{_begun(i == 0)}{_plain(_way(arm), tokens(length))}"
        + "".join(_shaded(found[arm, length, depth]) for depth in range(depths))
        + "</tr>"
        for arm in result.plan.arms
        for i, length in enumerate(result.lengths)
    )
    return _table(("way", "length", *places), rows)


def in_words(result: Result) -> str:
    rows = "".join(
        f"<tr><td>{one.task.replace('_', ' ')}</td><td>{_way(one.arm)}</td>"
        f"<td>{tokens(one.length)}</td><td>{'yes' if one.is_right else 'no'}</td>"
        f"<td>{escape(', '.join(one.wanted))}</td><td><q>{escape(one.answer)}</q></td></tr>"
        for one in result.examples
    )
    return _table(("task", "way", "length", "right", "wanted", "answer"), rows, "wide words")


def _table(head: tuple[str, ...], rows: str, kind: str = "") -> str:
    named = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{named}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _begun(is_first: bool) -> str:
    return '<tr class="first">' if is_first else "<tr>"


def _plain(*values: str) -> str:
    return "".join(f"<td>{value}</td>" for value in values)


def _shaded(accuracy: float | None) -> str:
    return f'<td class="{heat(accuracy)}">{share(accuracy)}</td>'


def _way(arm: Arm) -> str:
    return f"{mark(style_of(arm))}{arm}"


def tokens(count: int) -> str:
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}"


def share(value: float | None) -> str:
    return number(value, "{:.0%}")


def number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
