"""moto's server on loopback stands for S3 and SQS; calls to S3 can be made to fail."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import BaseWSGIServer, make_server

from ingest.events.aws import AwsConfig

REGION = "eu-central-1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}
Environ = dict[str, Any]
Start = Callable[..., Callable[[bytes], object]]
SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


@dataclass(slots=True)
class Faults:
    """`share` of all S3 calls about `buckets` fail: with 503, with 500, or cut in the middle."""

    share: float = 0.0
    buckets: tuple[str, ...] = ()
    rng: Random = field(default_factory=lambda: Random(1))
    num_calls: int = 0
    num_failures: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def striking(self, share: float, *buckets: str) -> Iterator[None]:
        self.share, self.buckets, self.num_failures = share, buckets, 0
        try:
            yield
        finally:
            self.buckets = ()

    def strikes(self, path: str) -> str | None:
        if path.split("/")[1] not in self.buckets:
            return None
        with self.lock:
            self.num_calls += 1
            if self.rng.random() >= self.share:
                return None
            self.num_failures += 1
            return self.rng.choice(["503 Slow Down", "500 Internal Server Error", "cut"])


class FaultyApp:
    def __init__(self, app: Callable[[Environ, Start], Iterable[bytes]], faults: Faults) -> None:
        self._app = app
        self._faults = faults

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        fault = self._faults.strikes(environ["PATH_INFO"])
        if fault == "cut" and environ["REQUEST_METHOD"] == "GET":
            body = b"".join(self._app(environ, start))
            return [body[: len(body) // 2]]
        if fault is not None:
            status = "503 Slow Down" if fault == "cut" else fault
            start(status, [("Content-Length", str(len(SLOW_DOWN))), ("Connection", "close")])
            return [SLOW_DOWN]
        return self._app(environ, start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    url: str
    faults: Faults
    s3: Any
    sqs: Any

    @property
    def aws(self) -> AwsConfig:
        return AwsConfig(endpoint_url=self.url, read_timeout_s=10.0)

    @property
    def environment(self) -> dict[str, str]:
        return ENVIRONMENT | {"AWS_ENDPOINT_URL": self.url}

    def new_bucket(self) -> str:
        name = f"bucket-{uuid4().hex[:12]}"
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def new_queue(self, **attributes: str) -> str:
        created = self.sqs.create_queue(QueueName=f"q-{uuid4().hex[:12]}", Attributes=attributes)
        return str(created["QueueUrl"])

    def new_queue_with_dead_letters(self, max_receives: int) -> tuple[str, str]:
        dead = self.new_queue()
        arn = self.sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
        arn = arn["Attributes"]["QueueArn"]
        policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": "{max_receives}"}}'
        return self.new_queue(RedrivePolicy=policy), dead

    def depth(self, url: str) -> int:
        """All messages of the queue, hidden ones included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
        return sum(int(found["Attributes"][name]) for name in names)


@contextmanager
def open_cloud() -> Iterator[Cloud]:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    faults = Faults()
    app = FaultyApp(DomainDispatcherApplication(create_backend_app), faults)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    with pytest.MonkeyPatch.context() as environment, _serving(server):
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        url = f"http://127.0.0.1:{server.server_port}"
        config = Config(retries={"max_attempts": 0})
        clients = {
            name: boto3.client(name, endpoint_url=url, config=config) for name in ("s3", "sqs")
        }
        try:
            yield Cloud(url=url, faults=faults, s3=clients["s3"], sqs=clients["sqs"])
        finally:
            for client in clients.values():
                client.close()


@contextmanager
def _serving(server: BaseWSGIServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
