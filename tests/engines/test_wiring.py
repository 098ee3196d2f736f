import asyncio
import socket
from pathlib import Path

import pytest

from engines.api import ModelMissing
from engines.config import EngineConfig
from engines.wiring import available_bytes, serve_engine


def config(folder: Path) -> EngineConfig:
    return EngineConfig(model_dir=folder, model_name="m")


def test_available_memory_is_within_the_machine() -> None:
    assert 0 < available_bytes() < 1 << 50


def test_a_folder_without_a_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"config\.json"):
        asyncio.run(serve_engine(config(tmp_path)))


@pytest.mark.timeout(120)
def test_a_port_that_is_taken_is_refused_before_anything_starts() -> None:
    from engines.models.catalog import default_model_dir

    pytest.importorskip("torch")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            asyncio.run(serve_engine(config(default_model_dir()), port=taken.getsockname()[1]))
