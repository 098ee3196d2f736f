"""A spreadsheet's stored numbers as its reader sees them: dates, times, percentages. Pure.

Knows number formats and calendars; knows no file.
"""

import re
from datetime import datetime, timedelta
from enum import Enum

BUILT_IN_DATES = frozenset({*range(14, 18), *range(27, 32), 34, 35, 36, *range(50, 59)})
BUILT_IN_TIMES = frozenset({18, 19, 20, 21, 32, 33, 45, 47})
BUILT_IN_PERCENTS = frozenset({9, 10})
DATE_AND_TIME, DURATION = 22, 46
QUOTED = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!(?:h+|m+|s+)\])[^\]]*\]', re.I)
ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.I)
EPOCH_1900, EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
DAY_S = 86_400
MAX_SERIAL = 2_958_466
"""The last day of the year 9999, as a serial number, and one."""
PHANTOM_LEAP_DAY = 60
"""Lotus took 1900 for a leap year; serials before this one are a day off."""


class Look(Enum):
    PLAIN = 0
    DATE = 1
    TIME = 2
    DATE_AND_TIME = 3
    DURATION = 4
    PERCENT = 5


def look_of(format_id: int, code: str | None) -> Look:
    """`code` is a workbook's own format; the ids of built-in formats have none."""
    if code is not None:
        return _look_of_code(code)
    if format_id in BUILT_IN_DATES:
        return Look.DATE
    if format_id in BUILT_IN_TIMES:
        return Look.TIME
    if format_id in BUILT_IN_PERCENTS:
        return Look.PERCENT
    return {DATE_AND_TIME: Look.DATE_AND_TIME, DURATION: Look.DURATION}.get(format_id, Look.PLAIN)


def _look_of_code(code: str) -> Look:
    bare = QUOTED.sub("", code.split(";")[0])
    if ELAPSED.search(bare):
        return Look.DURATION
    letters = set(bare.lower().replace("general", "").replace("am/pm", "h"))
    has_time = bool(letters & set("hs"))
    has_date = bool(letters & set("ydg")) or ("m" in letters and not has_time)
    if has_date:
        return Look.DATE_AND_TIME if has_time else Look.DATE
    if has_time:
        return Look.TIME
    return Look.PERCENT if "%" in bare else Look.PLAIN


def shown(stored: str, look: Look, *, is_1904: bool = False) -> str:
    """What is no number stays as it is stored."""
    try:
        number = float(stored)
    except ValueError:
        return stored
    if abs(number) >= 1e15 or number != number:
        return stored
    if look is Look.PERCENT:
        return f"{number * 100:.12g}%"
    if look is Look.PLAIN or not 0 <= number < MAX_SERIAL:
        return f"{number:.15g}"
    return _moment(number, look, is_1904=is_1904)


def _moment(number: float, look: Look, *, is_1904: bool) -> str:
    seconds = round(number * DAY_S)
    if look is Look.DURATION:
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    early = 1 if not is_1904 and number < PHANTOM_LEAP_DAY else 0
    moment = (EPOCH_1904 if is_1904 else EPOCH_1900) + timedelta(days=early, seconds=seconds)
    if look is Look.TIME or (look is Look.DATE_AND_TIME and number < 1):
        return moment.strftime("%H:%M:%S")
    if look is Look.DATE and seconds % DAY_S == 0:
        return moment.date().isoformat()
    return moment.isoformat(sep=" ")
