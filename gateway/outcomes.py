"""How a request ended, said exactly once: finished, failed or cancelled; log line and counter."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gateway import logs
from gateway.api import ClientLeft
from gateway.errors import fault_for
from gateway.metrics import Metrics
from gateway.telemetry import api as telemetry

logger = logging.getLogger(__name__)


@contextmanager
def concluded(
    endpoint: str, metrics: Metrics, monotonic: Callable[[], float]
) -> Iterator[dict[str, object]]:
    """Around the whole work of a request. What the block puts into the mapping is logged."""
    fields: dict[str, object] = {"endpoint": endpoint}
    token = logs.facts.set(fields)
    started_s = monotonic()
    outcome, code = "finished", ""
    try:
        yield fields
    except (asyncio.CancelledError, GeneratorExit, ClientLeft):
        outcome = "cancelled"
        raise
    except Exception as error:
        fault = fault_for(error)
        outcome, code = "failed", fault.code or "invalid_request"
        if fault.hidden:
            logger.exception("request failed")
        raise
    finally:
        logs.facts.reset(token)
        metrics.requests.labels(endpoint, outcome, code).inc()
        _trace(outcome, code)
        seconds = round(monotonic() - started_s, 6)
        logger.info(
            "request", extra={**fields, "outcome": outcome, "code": code, "seconds": seconds}
        )


def _trace(outcome: str, code: str) -> None:
    """An HTTP status cannot say it: a stream's is sent before anybody knows how it ends."""
    trace = telemetry.current.get()
    if trace is not None:
        error = {"error.type": code} if code else {}
        trace.tell({"ringway.outcome": outcome, **error})
