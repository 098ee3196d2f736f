"""The intake of S3 events as an AWS Lambda: `ingest.events.lambda_handler.handler`.

Knows Lambda's calls and clock. It copies objects and queues their ingest in the database; the
models are loaded by the workers that run those jobs, so a cold start stays small.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from ingest.api import IngestError
from ingest.events.intake import Intake
from ingest.events.settings import EventSettings
from ingest.events.settings import settings_from as event_settings_from
from ingest.events.wiring import open_intake
from ingest.settings import settings_from

logger = logging.getLogger(__name__)


class OutOfTime(IngestError):
    """The invocation ends before this record could be done; SQS sends it again."""


class LambdaHandler:
    """Does nothing until the first call; later calls of a warm process reuse what it opened."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._runner = asyncio.Runner()
        self._opened = AsyncExitStack()
        self._parts: tuple[Intake, EventSettings] | None = None

    def __call__(
        self, event: dict[str, object], context: LambdaContext
    ) -> PartialItemFailureResponse:
        """Records are taken one after another; those not done are `batchItemFailures`."""
        intake, events = self._open()

        def take(record: SQSRecord) -> None:
            within_s = context.get_remaining_time_in_millis() / 1000 - events.margin_s
            if within_s <= 0:
                raise OutOfTime("no time is left in this invocation")
            try:
                num_receives = int(record.attributes.approximate_receive_count or 1)
                is_last = num_receives >= events.max_receives
                self._runner.run(intake.take(record.body, is_last=is_last, within_s=within_s))
            except IngestError as error:
                fields = {"message_id": record.message_id, "cause": str(error)}
                logger.warning("message will come again", extra=fields)
                raise

        processor = BatchProcessor(
            EventType.SQS, raise_on_entire_batch_failure=False, logger=logger
        )
        return process_partial_response(event, take, processor, context)

    def _open(self) -> tuple[Intake, EventSettings]:
        if self._parts is None:
            events = event_settings_from(self._environ)
            opening = open_intake(settings_from(self._environ), events)
            intake = self._runner.run(self._opened.enter_async_context(opening))
            self._parts = intake, events
        return self._parts


handler = LambdaHandler(os.environ)
