"""The `store` of a test: one of every implementation."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from retrieval.api import Store
from tests.contracts import store_makers
from tests.contracts.store_makers import OpenStore
from tests.retrieval.stores.opensearch.sigv4 import ACCESS_KEY, SECRET_KEY


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the strict OpenSearch checks signatures against."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture(params=store_makers.ALL, ids=lambda make: make.__name__)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, credentials: None
) -> AsyncIterator[Store]:
    make: OpenStore = request.param
    async with make(tmp_path) as opened:
        yield opened
