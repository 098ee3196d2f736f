"""What can be set about S3 events, and the only reader of RINGWAY_EVENTS_* variables."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import msgspec

from ingest.events.aws import AwsConfig
from ingest.events.consumer import ConsumerConfig

PREFIX = "RINGWAY_EVENTS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """One field for each variable: `queue_url` is RINGWAY_EVENTS_QUEUE_URL.

    Region and endpoint are for S3 and SQS alike; None leaves them to AWS_* variables.
    """

    queue_url: str | None = None
    region: str | None = None
    endpoint_url: str | None = None
    lanes: int = 2
    wait_s: int = 5
    visibility_s: int = 60
    message_s: float = 900.0
    """How long one message may take, whatever its number of objects."""

    max_receives: int = 5
    """For the Lambda, which cannot ask: the queue's maxReceiveCount."""

    margin_s: float = 5.0
    """What a Lambda keeps of its time to report what it did not get done."""

    def __post_init__(self) -> None:
        if self.max_receives < 1 or self.margin_s < 0:
            raise ValueError("max_receives must be positive, margin_s not negative")
        self.consumer()

    def aws(self) -> AwsConfig:
        return AwsConfig(region=self.region, endpoint_url=self.endpoint_url)

    def consumer(self) -> ConsumerConfig:
        """Raises ValueError."""
        return ConsumerConfig(
            lanes=self.lanes,
            wait_s=self.wait_s,
            visibility_s=self.visibility_s,
            within_s=self.message_s,
        )


def settings_from(environ: Mapping[str, str], *, queue_url: str | None = None) -> EventSettings:
    """`queue_url` comes before the environment's. Raises ValueError for unknown or bad values."""
    names = {each.name for each in fields(EventSettings)}
    values: dict[str, str] = {}
    for variable, raw in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in names or variable != PREFIX + name.upper():
            raise ValueError(f"unknown setting {variable}")
        values[name] = raw
    if queue_url is not None:
        values["queue_url"] = queue_url
    try:
        return msgspec.convert(values, EventSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"bad setting {PREFIX}*: {error}") from error
