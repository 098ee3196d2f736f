"""One HTML page of a result, complete in itself: no script, no font, no picture from elsewhere."""

from collections.abc import Iterator, Sequence
from html import escape

from gateway.evaluation.charts import MARKS, SHARES, Curve, Point, chart, mark, powers
from gateway.evaluation.needles import Task
from gateway.evaluation.plan import Arm
from gateway.evaluation.results import Cell, Result

COLOURS = (
    ("#0b5fa5", "#6db3f2"),
    ("#b3261e", "#ff8a80"),
    ("#1b7a3d", "#6fd08c"),
    ("#7a4fb0", "#c3a1f5"),
    ("#8a5a00", "#f0b955"),
    ("#5a6472", "#a9b4c2"),
)
"""On white and on near-black; every one has a contrast of 4.5 or more with its ground."""

STYLE = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1c2126;--faint:#d8dde3;--soft:#5a6472;LIGHT}
@media(prefers-color-scheme:dark){:root{--ground:#14181d;--ink:#e6e9ed;--faint:#343c46;
--soft:#a9b4c2;DARK}}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--ground);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}
p{margin:.4rem 0;max-width:60rem}.soft{color:var(--soft)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1rem}
figure{margin:0}figcaption{color:var(--soft);font-size:.85rem}
svg{width:100%;height:auto;display:block}svg text{font-size:11px;fill:var(--soft)}
.grid{stroke:var(--faint);fill:none}.line,.whisker{fill:none;stroke:currentColor}
.line{stroke-width:2}.whisker{stroke-width:1.2;opacity:.75}.dot{fill:currentColor}
.mark{display:inline-block;width:24px;height:12px;vertical-align:-1px;margin-right:.3rem}
.legend{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:1rem 0;padding:0;list-style:none}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.85rem;
font-variant-numeric:tabular-nums}th,td{padding:.2rem .6rem;text-align:right;white-space:nowrap;
border-bottom:1px solid var(--faint)}th:first-child,td:first-child{text-align:left}
"""

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


def report(result: Result) -> str:
    title = f"Ringway evaluation of {result.plan.model}"
    sections = [_section(result, None), *(_section(result, task) for task in result.plan.tasks)]
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_style()}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *_about(result),
            _legend(result.plan.arms),
            *sections,
            _depths(result),
            "</body></html>\n",
        ]
    )


def _style() -> str:
    light = "".join(f"--c{i}:{pair[0]};" for i, pair in enumerate(COLOURS))
    dark = "".join(f"--c{i}:{pair[1]};" for i, pair in enumerate(COLOURS))
    classes = "".join(f".c{i}{{color:var(--c{i})}}" for i in range(len(COLOURS)))
    return STYLE.replace("LIGHT", light).replace("DARK", dark) + classes


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
        yield f"<p>{escape(note)}</p>"


def _legend(arms: Sequence[Arm]) -> str:
    items = "".join(f"<li>{mark(style_of(arm))}{arm}</li>" for arm in arms)
    return f'<ul class="legend">{items}</ul>'


def style_of(arm: Arm) -> int:
    return list(Arm).index(arm) % len(MARKS)


def _section(result: Result, task: Task | None) -> str:
    name = "All tasks" if task is None else task.value.replace("_", " ")
    labels = [tokens(length) for length in result.lengths]
    accuracy = chart(f"Accuracy by length: {name}", labels, _accuracy(result, task), SHARES)
    seconds = _seconds(result, task)
    axis = powers([point.value for curve in seconds for point in curve.points], "s")
    cost = chart(f"Seconds by length: {name}", labels, seconds, axis)
    return (
        f'<h2>{name}</h2><div class="pair">'
        f"<figure>{accuracy}<figcaption>Right answers by prompt length</figcaption></figure>"
        f"<figure>{cost}<figcaption>Seconds to the whole answer, mean</figcaption></figure></div>"
        f'<div class="scroll">{_table(result, task)}</div>'
    )


def _accuracy(result: Result, task: Task | None) -> list[Curve]:
    return [
        Curve(
            name=arm,
            style=style_of(arm),
            points=[
                Point(
                    index=i,
                    value=cell.accuracy,
                    low=cell.low,
                    high=cell.high,
                    told=f"{arm} at {tokens(cell.length)}: {cell.right} of {cell.answered}",
                )
                for i, cell in _cells(result, arm, task)
                if cell.accuracy is not None
            ],
        )
        for arm in result.plan.arms
    ]


def _seconds(result: Result, task: Task | None) -> list[Curve]:
    return [
        Curve(
            name=arm,
            style=style_of(arm),
            points=[
                Point(
                    index=i,
                    value=total_s,
                    low=total_s,
                    high=total_s,
                    told=f"{arm} at {tokens(cell.length)}: {total_s:.2f} s",
                )
                for i, cell in _cells(result, arm, task)
                if (total_s := cell.cost.total_s)
            ],
        )
        for arm in result.plan.arms
    ]


def _cells(result: Result, arm: Arm, task: Task | None) -> Iterator[tuple[int, Cell]]:
    for i, length in enumerate(result.lengths):
        cell = result.cell(arm, task, length)
        if cell is not None:
            yield i, cell


def _table(result: Result, task: Task | None) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = (
        "".join(f"<td>{value}</td>" for value in _row(cell))
        for arm in result.plan.arms
        for _, cell in _cells(result, arm, task)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(cell: Cell) -> Iterator[str]:
    cost, is_answered = cell.cost, cell.answered > 0
    yield f"{mark(style_of(cell.arm))}{cell.arm}"
    yield tokens(cell.length)
    yield str(cell.answered)
    yield share(cell.accuracy)
    yield f"{cell.low:.0%} to {cell.high:.0%}" if is_answered else "-"
    yield share(cell.partial)
    yield from (str(cell.refused), str(cell.failed), str(cell.not_asked))
    yield number(cost.tokens_read, "{:,.0f}")
    yield number(cost.first_token_s, "{:,.2f} s")
    yield number(cost.total_s, "{:,.2f} s")
    yield number(cost.prefill_ms, "{:,.0f} ms")


def _depths(result: Result) -> str:
    depths = result.plan.num_depths
    places = [f"{i / (depths - 1):.0%}" if depths > 1 else "50%" for i in range(depths)]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("way", "length", *places))
    by_place = {(c.arm, c.length, c.depth): c for c in result.depths}
    rows = "".join(
        f"<tr><td>{mark(style_of(arm))}{arm}</td><td>{tokens(length)}</td>"
        + "".join(
            f"<td>{share(by_place[arm, length, depth].accuracy)}</td>" for depth in range(depths)
        )
        + "</tr>"
        for arm in result.plan.arms
        for length in result.lengths
    )
    return (
        "<h2>By depth</h2><p>Accuracy over all tasks by where the fact stands: 0% is at the "
        f'start.</p><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def tokens(count: int) -> str:
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}"


def share(value: float | None) -> str:
    return number(value, "{:.0%}")


def number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
