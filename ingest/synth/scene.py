"""What every part of a case file is written from: its voice, its cast and what is due to plant."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ingest.synth.dice import Dice
from ingest.synth.facts import Planting
from ingest.synth.grammar import Writer
from ingest.synth.layout import Block
from ingest.synth.names import Cast
from ingest.synth.values import MONTHS, Ledger, draw_code

LIVE_NAMES = ("person", "company", "place", "sum", "date", "count", "ref")


class Planter:
    """Hands out sentences when the document is long enough for them.

    `due` pairs each planting with the token count at which it is due, ascending.
    """

    def __init__(self, due: Iterable[tuple[float, Planting]]) -> None:
        self._due = deque(due)
        self._num_tokens = 0
        self._is_held = False

    def advance(self, block: Block, num_tokens: int) -> None:
        """The block, worth `num_tokens`, is on the page."""
        self._num_tokens += num_tokens
        if block.planting is not None:
            self._is_held = False

    def take(self) -> Planting | None:
        """The next sentence if its place is reached; the caller must write it."""
        if self._due and self._due[0][0] <= self._num_tokens:
            self._is_held = True
            return self._due.popleft()[1]
        return None

    @property
    def is_done(self) -> bool:
        """Whether every sentence was handed out and written."""
        return not self._due and not self._is_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    dice: Dice
    cast: Cast
    writer: Writer
    planter: Planter


def live_names(dice: Dice, cast: Cast, ledger: Ledger) -> dict[str, Callable[[], str]]:
    """Sources for LIVE_NAMES: what filler may name without ever hitting a planted value."""
    return {
        "person": lambda: dice.pick(cast.people),
        "company": lambda: dice.pick(cast.companies),
        "place": lambda: dice.pick(cast.places),
        "sum": lambda: ledger.free(lambda: f"${dice.between(24, 48_000) * 50:,}"),
        "date": lambda: ledger.free(
            lambda: f"{dice.between(1, 28)} {dice.pick(MONTHS)} {dice.between(2012, 2024)}"
        ),
        "count": lambda: str(dice.between(2, 38)),
        "ref": lambda: ledger.free(lambda: draw_code(dice)),
    }
