"""The lines of a batch's input file: where they are, what is wrong with them, one by one.

Works on a file of this machine; knows no store and no engine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import msgspec

from gateway.batches.api import MAX_LINES, BatchFault, BatchLine
from gateway.batches.kinship import Digests, beginnings, kinships

MAX_FAULTS = 100
MAX_CUSTOM_ID = 512


class LineBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    custom_id: str
    method: str
    url: str
    body: dict[str, object]


@dataclass(frozen=True, slots=True)
class Checked:
    """Either lines or faults."""

    lines: Sequence[BatchLine]
    faults: Sequence[BatchFault]


def check_input(file: BinaryIO, endpoint: str, *, max_lines: int = MAX_LINES) -> Checked:
    """Read the whole file. All lines are good, or none is run."""
    lines: list[BatchLine] = []
    digests: list[Digests] = []
    faults: list[BatchFault] = []
    seen: set[str] = set()
    for start, raw in _lines_of(file):
        number = len(lines) + len(faults)
        if number >= max_lines:
            message = f"A batch has at most {max_lines} lines."
            return Checked([], [BatchFault(code="too_many_lines", message=message)])
        found = _check(raw, endpoint, seen, number)
        if isinstance(found, BatchFault):
            faults.append(found)
            if len(faults) >= MAX_FAULTS:
                break
            continue
        seen.add(found.custom_id)
        lines.append(
            BatchLine(number=number, custom_id=found.custom_id, start=start, stop=start + len(raw))
        )
        digests.append(beginnings(found.body))
    if not lines and not faults:
        return Checked([], [BatchFault(code="empty_file", message="The input file has no lines.")])
    if faults:
        return Checked([], faults)
    kin = kinships(digests)
    return Checked([replace(line, kinship=kin[i]) for i, line in enumerate(lines)], [])


def read_line(file: BinaryIO, line: BatchLine) -> LineBody:
    """A line that was checked before."""
    file.seek(line.start)
    return msgspec.json.decode(file.read(line.stop - line.start), type=LineBody)


def _lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Where each line starts, and its bytes; empty lines are none."""
    file.seek(0)
    start = 0
    for raw in file:
        if raw.strip():
            yield start, raw
        start += len(raw)


def _check(raw: bytes, endpoint: str, seen: set[str], number: int) -> LineBody | BatchFault:
    try:
        line = msgspec.json.decode(raw, type=LineBody)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return _fault(
            "invalid_json_line", f"This line is not as a batch needs it: {error}.", number
        )
    if not line.custom_id or len(line.custom_id) > MAX_CUSTOM_ID:
        message = f"'custom_id' must have from 1 to {MAX_CUSTOM_ID} characters."
        return _fault("invalid_custom_id", message, number, "custom_id")
    if line.custom_id in seen:
        message = f"The custom_id '{line.custom_id}' is on another line too."
        return _fault("duplicate_custom_id", message, number, "custom_id")
    if line.method != "POST":
        return _fault("invalid_method", "'method' must be 'POST'.", number, "method")
    if line.url != endpoint:
        message = f"'url' must be the batch's endpoint, '{endpoint}'."
        return _fault("mismatched_url", message, number, "url")
    if line.body.get("stream"):
        return _fault("invalid_value", "A batch's line cannot stream.", number, "body.stream")
    if line.body.get("service_tier") not in (None, "auto", "default", "flex"):
        message = "A batch's lines run as 'flex'; leave 'service_tier' out."
        return _fault("invalid_value", message, number, "body.service_tier")
    return line


def _fault(code: str, message: str, number: int, param: str | None = None) -> BatchFault:
    return BatchFault(code=code, message=message, line=number + 1, param=param)
