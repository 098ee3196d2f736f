"""The Lambda under AWS's own runtime client: events in, failed records out, files to be found."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ingest.database import sqlite_url
from retrieval.api import SearchRequest
from tests.ingest.events.cloud import Cloud
from tests.ingest.events.messages_of_s3 import Told, direct, in_eventbridge
from tests.ingest.events.runtime_api import RuntimeApi, open_runtime_api
from tests.ingest.house import PlainSandbox, open_house

HEAVY = "torch transformers sentence_transformers lancedb pyarrow pypdfium2 opensearchpy"
HANDLER = "ingest.events.lambda_handler.handler"


@contextmanager
def function(api: RuntimeApi, cloud: Cloud, data_dir: Path) -> Iterator[None]:
    environment = os.environ | cloud.environment
    environment |= {
        "AWS_LAMBDA_RUNTIME_API": api.address,
        "AWS_LAMBDA_FUNCTION_NAME": "intake",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/intake",
        "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
        "LAMBDA_TASK_ROOT": str(data_dir),
        "RINGWAY_INGEST_DATA_DIR": str(data_dir),
        "RINGWAY_INGEST_DATABASE_URL": sqlite_url(data_dir / "metadata.db"),
        "RINGWAY_EVENTS_MARGIN_S": "2",
    }
    process = subprocess.Popen([sys.executable, "-m", "awslambdaric", HANDLER], env=environment)
    try:
        yield
        assert process.poll() is None, "the runtime ended by itself"
    finally:
        process.kill()
        process.wait()


def batch(*bodies: str, num_receives: int = 1) -> dict[str, object]:
    records = [
        {
            "messageId": f"message-{number}",
            "receiptHandle": "handle",
            "body": body,
            "attributes": {"ApproximateReceiveCount": str(num_receives)},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:events",
            "awsRegion": "eu-central-1",
        }
        for number, body in enumerate(bodies)
    ]
    return {"Records": records}


def failed(answer: dict[str, object]) -> list[str]:
    failures = answer["batchItemFailures"]
    assert isinstance(failures, list)
    return [failure["itemIdentifier"] for failure in failures]


@pytest.mark.services
@pytest.mark.timeout(60)
async def test_records_are_taken_and_those_that_failed_are_named(
    cloud: Cloud, tmp_path: Path
) -> None:
    bucket = cloud.new_bucket()
    texts = {"a+b.txt": "The rent is nine hundred guilders.", "ü.txt": "The ship sank at noon."}
    told = []
    for key, text in texts.items():
        answer = cloud.s3.put_object(Bucket=bucket, Key=key, Body=text.encode())
        told.append(Told(key=key, size=len(text), etag=answer["ETag"], bucket=bucket))
    with open_runtime_api() as api, function(api, cloud, tmp_path):
        # In a thread: the test's loop stays free, as a real caller's would be.
        first = await asyncio.to_thread(
            api.invoke, batch(direct(told[0]), '{"what": "is this"}', in_eventbridge(told[1]))
        )
        assert failed(first) == ["message-1"]
        late = await asyncio.to_thread(
            api.invoke, batch(direct(told[0]), direct(told[1])), remaining_s=1.0
        )
        assert failed(late) == ["message-0", "message-1"], "no time was left"
        lost = Told(key="k", bucket="no-such-bucket", size=1, sequencer="0066")
        again = await asyncio.to_thread(
            api.invoke, batch(direct(told[0]), direct(lost), direct(told[1]))
        )
        assert failed(again) == [], "what is gone needs no retry"
    async with open_house(tmp_path, sandbox=PlainSandbox()) as house:
        await house.settle()
        page = await house.library.list(after=None, limit=10, ascending=True, purpose=None)
        assert {record.filename for record in page.files} == set(texts)
        found = await house.library.search(
            SearchRequest(query="guilders", document_ids=[record.id for record in page.files])
        )
        assert found.passages[0].text == texts["a+b.txt"]


def test_a_cold_start_imports_no_model_no_index_and_no_parser() -> None:
    script = f"""
import sys
import ingest.events.lambda_handler
found = [name for name in {HEAVY!r}.split() if name in sys.modules]
sys.exit(" ".join(found) or 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
