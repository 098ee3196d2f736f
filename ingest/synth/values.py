"""Sums, dates, codes and clause numbers: knows how they are spelled and which are taken."""

from collections.abc import Callable
from enum import StrEnum

from ingest.synth.dice import Dice

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
CODE_LETTERS = "ABCDEFHKLMNPRTVWX"


class ValueKind(StrEnum):
    SUM = "sum"
    DATE = "date"
    NAME = "name"
    CODE = "code"
    CLAUSE = "clause"


def draw_sum(dice: Dice) -> str:
    """$12,350 … $989,950; round enough for a contract, odd enough to be told apart."""
    return f"${dice.between(247, 19_799) * 50:,}"


def draw_date(dice: Dice) -> str:
    """A day from 2012 to 2033, as in "9 March 2017"."""
    return f"{dice.between(1, 28)} {dice.pick(MONTHS)} {dice.between(2012, 2033)}"


def draw_code(dice: Dice) -> str:
    return f"{dice.pick(CODE_LETTERS)}{dice.pick(CODE_LETTERS)}-{dice.between(1000, 9999)}"


def draw_clause(dice: Dice) -> str:
    """Above 40: filler contracts end well below, so the number is unmistakable."""
    return f"{dice.between(41, 98)}.{dice.between(2, 29)}"


DRAWS: dict[ValueKind, Callable[[Dice], str]] = {
    ValueKind.SUM: draw_sum,
    ValueKind.DATE: draw_date,
    ValueKind.CODE: draw_code,
    ValueKind.CLAUSE: draw_clause,
}


def ordinal(day: int) -> str:
    if day in (11, 12, 13):
        return f"{day}th"
    return f"{day}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th') }"


def spellings(kind: ValueKind, value: str) -> tuple[str, ...]:
    """Every way of writing `value` that counts as right; `value` itself comes first."""
    if kind is ValueKind.SUM:
        bare = value.removeprefix("$")
        return (value, bare, bare.replace(",", ""))
    if kind is ValueKind.DATE:
        day, month, year = value.split()
        th = ordinal(int(day))
        number = MONTHS.index(month) + 1
        return (
            value,
            f"{month} {day}, {year}",
            f"{month} {day} {year}",
            f"{month} {th}, {year}",
            f"{th} {month} {year}",
            f"{th} of {month} {year}",
            f"{th} of {month}, {year}",
            f"{year}-{number:02d}-{int(day):02d}",
        )
    if kind is ValueKind.NAME:
        surname = value.split()[-1]
        return (value, surname)
    if kind is ValueKind.CODE:
        return (value, value.replace("-", ""), value.replace("-", " "))
    return (value,)


class Ledger:
    """Keeps the planted values apart from everything else, so that each answer is said once."""

    def __init__(self) -> None:
        self._reserved: set[str] = set()

    def reserve(self, draw: Callable[[], str]) -> str:
        """A value that nobody has and nobody else will get."""
        value = self.free(draw)
        self._reserved.add(value)
        return value

    def free(self, draw: Callable[[], str]) -> str:
        """A value that is not reserved; it may be drawn again."""
        while (value := draw()) in self._reserved:
            pass
        return value
