import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.types import ASGIApp

from engines.api import ModelMissing
from engines.config import EngineConfig
from engines.wiring import available_bytes, serve_engine


def config(folder: Path) -> EngineConfig:
    return EngineConfig(model_dir=folder, model_name="m")


def test_available_memory_is_within_the_machine() -> None:
    assert 0 < available_bytes() < 1 << 50


def test_a_folder_without_a_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"config\.json"):
        asyncio.run(serve_engine(config(tmp_path), never))


async def never(app: ASGIApp, on_stop: Callable[[], object]) -> None:
    raise AssertionError("nothing may be served")
