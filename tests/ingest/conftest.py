"""Fixtures of ingest's tests."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ingest.house import House, open_house

if TYPE_CHECKING:
    from tests.ingest.events.cloud import Cloud

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def documents() -> Path:
    folder = Path(os.environ.get("RINGWAY_TEST_DATA", ROOT.parent / "shared/data")) / "documents"
    if not folder.is_dir():
        pytest.skip(f"no test documents at {folder}")
    return folder


@pytest.fixture(scope="session")
def cloud() -> Iterator["Cloud"]:
    from tests.ingest.events.cloud import open_cloud  # moto takes a second to import

    with open_cloud() as opened:
        yield opened
