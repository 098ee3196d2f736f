"""boto3 clients and what their errors mean for a retry. Knows neither objects nor messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ingest.api import TransientError


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsConfig:
    """None leaves region and endpoint to the SDK's own chain (AWS_* variables, profile, role)."""

    region: str | None = None
    endpoint_url: str | None = None
    max_attempts: int = 3
    """Attempts of one call inside the SDK; above it whole messages are tried again."""

    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0


class CallRefused(Exception):
    """AWS answered with an error. `code` is its code, or the status when it sent no body."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def make_client(service: str, config: AwsConfig) -> object:
    """Takes about 0.2 s; the result is safe to use from several threads."""
    return boto3.client(
        service,
        region_name=config.region,
        endpoint_url=config.endpoint_url,
        config=Config(
            retries={"mode": "standard", "max_attempts": config.max_attempts},
            connect_timeout=config.connect_timeout_s,
            read_timeout=config.read_timeout_s,
            user_agent_extra="ringway",
        ),
    )


@contextmanager
def translated() -> Iterator[None]:
    """Raises CallRefused for an answer, TransientError when there was none."""
    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", "unknown"))
        raise CallRefused(code, str(error)) from error
    except BotoCoreError as error:
        raise TransientError(f"AWS does not answer: {error}") from error
