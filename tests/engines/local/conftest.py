"""Models that the tests of this folder share."""

import os
from pathlib import Path

import pytest

from engines.models.catalog import default_model_dir
from tests.engines.local.families import NAMES, save_family


@pytest.fixture(scope="session")
def families(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("families")
    return {name: save_family(name, folder / name) for name in NAMES}


@pytest.fixture(scope="session")
def smollm2() -> Path:
    given = os.environ.get("RINGWAY_TEST_MODEL")
    return Path(given) if given else default_model_dir()
