"""Whether an answer says what was planted, and how sure a share of right answers is; pure."""

import math
import re
from collections.abc import Iterable

Z = 1.96
"""Of a two-sided interval of 95 %."""


def says(answer: str, value: str) -> bool:
    """`value` exactly, and not as a part of a longer word or number."""
    return re.search(rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])", answer) is not None


def num_said(answer: str, values: Iterable[str]) -> int:
    return sum(says(answer, value) for value in values)


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share; of nothing at all, everything is possible."""
    if total == 0:
        return 0.0, 1.0
    share, square = right / total, Z * Z
    middle = share + square / (2 * total)
    spread = Z * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    scale = 1 + square / total
    low = 0.0 if right == 0 else (middle - spread) / scale
    high = 1.0 if right == total else (middle + spread) / scale
    return low, high
