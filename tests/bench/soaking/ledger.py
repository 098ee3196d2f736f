"""What the clients of a soak saw: every request with its end, and which key it was asked with.

Reads answers as a client does: whole bodies, and streams to their last frame.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.bench.soaking.wire import Leave, Reply

STREAM = "text/event-stream"
LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed", "error")


class End(StrEnum):
    """`REFUSED`: a status but 200. `FAILED`: an error inside a stream. `BROKEN`: no end at all."""

    ANSWERED = "answered"
    REFUSED = "refused"
    FAILED = "failed"
    LEFT = "left"
    BROKEN = "broken"


@dataclass(slots=True)
class Record:
    """One request; `tokens` is all that its answer's usage told."""

    request_id: str
    kind: str
    path: str
    key_id: str
    leave: Leave | None
    status: int = 0
    end: End = End.BROKEN
    tokens: int | None = None

    def close(self, reply: Reply | None) -> None:
        if reply is None:
            self.end = End.LEFT
            return
        self.status = reply.status
        if not reply.is_whole:
            return
        if reply.status != 200:
            self.end = End.REFUSED
        elif reply.headers.get("content-type", "").startswith(STREAM):
            self._close_stream(reply.body)
        else:
            self.end = End.ANSWERED
            self.tokens = _tokens(_object(reply.body))

    def _close_stream(self, body: bytes) -> None:
        frames = list(_frames(body))
        if not frames:
            return
        for frame in frames:
            self.tokens = _tokens(frame) or self.tokens
        is_error = any("error" in one and one["error"] for one in frames)
        is_error |= frames[-1].get("type") in ("response.failed", "error")
        is_last = body.rstrip().endswith(b"data: [DONE]") or (frames[-1].get("type") in LAST_EVENTS)
        if is_error:
            self.end = End.FAILED
        elif is_last:
            self.end = End.ANSWERED


@dataclass(slots=True)
class Ledger:
    records: dict[str, Record] = field(default_factory=dict)

    def open(self, record: Record) -> Record:
        assert record.request_id not in self.records
        self.records[record.request_id] = record
        return record

    def with_end(self, *ends: End) -> list[Record]:
        return [one for one in self.records.values() if one.end in ends]


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _frames(body: bytes) -> Iterable[Mapping[str, Any]]:
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            yield _object(line[6:])


def _tokens(body: Mapping[str, Any]) -> int | None:
    usage = body.get("usage") or (body.get("response") or {}).get("usage")
    return None if not usage else int(usage["total_tokens"])
