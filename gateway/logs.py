"""How log lines look and whose request they belong to; handlers are configured elsewhere."""

import logging
from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="-")


class RequestIdFilter(logging.Filter):
    """Gives every record the id of the request that it was written for."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.request_id = request_id.get()
        return True


STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"request_id", "message", "asctime"}


class FieldsFormatter(logging.Formatter):
    """`time level logger request_id event key=value …`, the fields from `extra`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(request_id)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [f"{k}={v}" for k, v in vars(record).items() if k not in STANDARD]
        return " ".join([super().formatMessage(record), *fields])
