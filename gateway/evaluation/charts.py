"""Curves over prompt lengths as SVG; knows points and strokes, nothing of what they mean."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 34
SHIFT = 5.0
"""Pixels between the points of two curves at one length, so that intervals do not hide others."""
MARKS = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
    "M-3.6-3.6h7.2v7.2h-7.2z",
    "M0-4.6L4.4 3.4h-8.8z",
    "M0-5L5 0L0 5L-5 0z",
    "M0 4.6L4.4-3.4h-8.8z",
    "M-4-1.3h2.7v-2.7h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7z",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """At the `index`-th length; `low` and `high` are equal to `value` when nothing is unsure."""

    index: int
    value: float
    low: float
    high: float
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`style` chooses colour and mark: the same for one name on all charts."""

    name: str
    style: int
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Values from `low` to `high`; `ticks` says what is written at which of them."""

    low: float
    high: float
    ticks: Mapping[float, str]
    is_log: bool = False

    def y(self, value: float) -> float:
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        share = (at - low) / (high - low)
        return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


STEPS = (1, 2, 5)
SHARES = Axis(low=0.0, high=1.0, ticks={i / 4: f"{25 * i} %" for i in range(5)})


def powers(values: Sequence[float], unit: str = "") -> Axis:
    """Powers of ten around the values, and what lies between them where that are few."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = _step(min(positive), -1), _step(max(positive), 1)
    if low >= high:
        low, high = _step(low * 0.99, -1), _step(high * 1.01, 1)
    is_short = high / low <= 100
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    marked = [step * 10.0**decade for decade in decades for step in (STEPS if is_short else (1,))]
    ticks = {at: f"{at:,.10g}{unit}" for at in marked if low * 0.999 <= at <= high * 1.001}
    return Axis(low=low, high=high, ticks=ticks, is_log=True)


def _step(value: float, direction: int) -> float:
    """The next of 1, 2, 5, 10 ... at or below (-1) or above (1) a value."""
    decade = 10.0 ** math.floor(math.log10(value))
    steps = [step * decade for step in (*STEPS, 10)]
    if direction < 0:
        return max(step for step in steps if step <= value * 1.000001)
    return min(step for step in steps if step >= value * 0.999999)


def chart(title: str, labels: Sequence[str], curves: Sequence[Curve], axis: Axis) -> str:
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        *(_tick(axis.y(value), text) for value, text in axis.ticks.items()),
        f'<path class="grid" d="M{LEFT} {axis.y(axis.low):.1f}H{WIDTH - RIGHT}"/>',
        *(_label(_x(i, len(labels)), text) for i, text in enumerate(labels)),
        *(
            _curve(curve, axis, len(labels), SHIFT * (number - (len(curves) - 1) / 2))
            for number, curve in enumerate(curves)
        ),
        "</svg>",
    ]
    return "".join(parts)


def mark(style: int) -> str:
    """What stands for a curve in a legend."""
    return (
        f'<svg class="mark" viewBox="-12 -6 24 12" aria-hidden="true"><g class="c{style}">'
        f'<path class="line" d="M-12 0H12"/><path class="dot" d="{MARKS[style]}"/></g></svg>'
    )


def _x(index: int, count: int) -> float:
    room = WIDTH - LEFT - RIGHT
    return LEFT + room * (index + 0.5) / count


def _tick(y: float, text: str) -> str:
    return (
        f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
    )


def _label(x: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - 12}" text-anchor="middle">{escape(text)}</text>'


def _curve(curve: Curve, axis: Axis, count: int, shift: float) -> str:
    places = [(_x(p.index, count) + shift, axis.y(p.value), p) for p in curve.points]
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
    parts = [f'<g class="c{curve.style}">']
    if places:
        parts.append(f'<path class="line" d="M{line}"/>')
    for x, y, point in places:
        low, high = axis.y(point.low), axis.y(point.high)
        if low != high:
            whisker = f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 3:.1f} {low:.1f}h6"
            parts.append(f'<path class="whisker" d="{whisker}M{x - 3:.1f} {high:.1f}h6"/>')
        parts.append(
            f'<path class="dot" transform="translate({x:.1f} {y:.1f})" d="{MARKS[curve.style]}">'
            f"<title>{escape(point.told)}</title></path>"
        )
    return "".join([*parts, "</g>"])
