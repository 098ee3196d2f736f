"""One HTML page of a result, complete in itself: no script, no font, no picture from elsewhere."""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from gateway.evaluation.charts import SHARES, Axis, Curve, Point, chart, mark, powers
from gateway.evaluation.needles import Task
from gateway.evaluation.page_style import style
from gateway.evaluation.plan import Arm
from gateway.evaluation.results import Cell, Cost, Result
from gateway.evaluation.tables import by_depth, cells, in_words, style_of, table, tokens

ASKED = {
    Task.SINGLE: "one number under a name",
    Task.MULTIKEY: "one of four numbers that differ by name",
    Task.MULTIVALUE: "four numbers under one name, all asked for",
    Task.MULTIQUERY: "four names with a number each, all asked for",
    Task.VARIABLES: "the four names that a value was handed on to",
    Task.KEY_VALUE: "one line of a list of keys and values",
    Task.STRADDLING: "a fact with a chunk's border inside it",
    Task.TWO_HOP: "two facts, far apart, that must be put together",
}


def report(result: Result) -> str:
    title = f"Ringway evaluation of {result.plan.model}"
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(title)}</title><style>{style()}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *_about(result),
            _legend(result.plan.arms),
            *_overall(result),
            '<h2>By task</h2><div class="charts">',
            *(_card(result, task) for task in result.plan.tasks),
            "</div><h2>By depth</h2><p>Right answers of all tasks, by where the fact stands: ",
            f"0% is at the start.</p>{by_depth(result)}",
            "<h2>In the model&#39;s words</h2><p>An answer per task and way: a wrong one where ",
            f"there is one.</p>{in_words(result)}",
            "</body></html>\n",
        ]
    )


def _about(result: Result) -> Iterator[str]:
    plan = result.plan
    yield (
        f'<p class="soft">Seed {plan.seed}; {plan.samples} samples per task, length and depth, '
        f"{plan.num_depths} depths; text: {escape(plan.haystack)}.</p>"
    )
    yield (
        "<p>An answer is right when it says every planted value exactly; <i>partial</i> is the "
        "share of the values said. Whiskers are Wilson&#39;s 95 % intervals. A refused prompt is "
        "not a wrong answer and has no point.</p>"
    )
    for note in result.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _legend(arms: Sequence[Arm]) -> str:
    items = "".join(f"<li>{mark(style_of(arm))}{arm}</li>" for arm in arms)
    return f'<ul class="legend">{items}</ul>'


def _overall(result: Result) -> Iterator[str]:
    seconds = _costs(result, lambda cost: cost.total_s, "{:,.2f} s")
    read = _costs(result, lambda cost: cost.tokens_read, "{:,.0f} tokens read")
    yield '<h2>All tasks</h2><div class="charts">'
    yield _figure(result, "Right answers", "by prompt length", _accuracy(result, None), SHARES)
    yield _figure(result, "Seconds", "to the whole answer, mean", seconds, _around(seconds, " s"))
    yield _figure(result, "Tokens read", "by the model, mean", read, _around(read))
    yield f"</div>{table(result, None)}"


def _card(result: Result, task: Task) -> str:
    name = task.replace("_", " ")
    drawn = _figure(result, name, ASKED[task], _accuracy(result, task), SHARES)
    return (
        f'<div class="task">{drawn}'
        f"<details><summary>figures of {name}</summary>{table(result, task)}</details></div>"
    )


def _figure(result: Result, title: str, more: str, curves: list[Curve], axis: Axis) -> str:
    labels = [tokens(length) for length in result.lengths]
    drawn = chart(f"{title} by length", labels, curves, axis)
    told = f"{escape(title)} <span>{escape(more)}</span>"
    return f"<figure><figcaption>{told}</figcaption>{drawn}</figure>"


def _around(curves: Sequence[Curve], unit: str = "") -> Axis:
    return powers([point.value for curve in curves for point in curve.points], unit)


def _accuracy(result: Result, task: Task | None) -> list[Curve]:
    def point(i: int, cell: Cell) -> Point | None:
        if cell.accuracy is None:
            return None
        told = f"{cell.arm} at {tokens(cell.length)}: {cell.right} of {cell.answered}"
        return Point(index=i, value=cell.accuracy, low=cell.low, high=cell.high, told=told)

    return _curves(result, task, point)


def _costs(result: Result, of: Callable[[Cost], float | None], form: str) -> list[Curve]:
    def point(i: int, cell: Cell) -> Point | None:
        value = of(cell.cost)
        if not value:
            return None
        told = f"{cell.arm} at {tokens(cell.length)}: {form.format(value)}"
        return Point(index=i, value=value, low=value, high=value, told=told)

    return _curves(result, None, point)


def _curves(
    result: Result, task: Task | None, point: Callable[[int, Cell], Point | None]
) -> list[Curve]:
    return [
        Curve(
            name=arm,
            style=style_of(arm),
            points=[
                found
                for i, cell in cells(result, arm, task)
                if (found := point(i, cell)) is not None
            ],
        )
        for arm in result.plan.arms
    ]
