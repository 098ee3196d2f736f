"""Fixtures of the tests of S3 events."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.ingest.events.gate import Bucket, Gate, open_gate


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    async with open_gate(tmp_path) as opened:
        yield opened


@pytest.fixture
def bucket(gate: Gate) -> Bucket:
    return Bucket(gate.source)
