"""Fixtures of ingest's tests."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.ingest.house import House, open_house

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
