"""How log lines look and whose request they belong to; handlers are configured elsewhere."""

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime

import msgspec

request_id: ContextVar[str] = ContextVar("request_id", default="-")

facts: ContextVar[dict[str, object] | None] = ContextVar("facts", default=None)
"""What will be logged of the request that is being served, when it ends."""


def tell(**told: str | int | float) -> None:
    """Have counts and short names in the request's log line. Never text of a prompt or answer."""
    found = facts.get()
    if found is not None:
        found.update(told)


def add(**amounts: int) -> None:
    """As `tell`, for what a request does several times: the log line has the sums."""
    found = facts.get()
    if found is not None:
        for name, amount in amounts.items():
            before = found.get(name, 0)
            assert isinstance(before, int), "a name is added to or told, not both"
            found[name] = before + amount


class RequestIdFilter(logging.Filter):
    """Gives every record the id of the request that it was written for."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    *("request_id", "message", "asctime"),
    "color_message",  # uvicorn's, for terminals
}


class FieldsFormatter(logging.Formatter):
    """`time level logger request_id event key=value …`, the fields from `extra`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [f"{name}={value}" for name, value in _fields_of(record).items()]
        return " ".join([super().formatMessage(record), *fields])


class JsonLines(logging.Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `request_id`, `event`, the fields from
    `extra`, and a `traceback` if there is one. Fields are numbers and short names, never text."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "request_id": getattr(record, "request_id", "-"),
            "event": record.getMessage(),
            **_fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    return {name: value for name, value in vars(record).items() if name not in STANDARD}
