"""`ringway rank`, and the door that `ringway engine` opens for it, up to where processes start."""

import argparse
from pathlib import Path

import pytest

from engines.config import EngineConfig
from engines.gang.launcher import RankDoor
from engines.models.catalog import default_model_dir
from engines.wiring import build_supervisor
from gateway.cli import engine, rank
from gateway.cli.main import Refusal, main

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (*TORCHRUN, engine.TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({engine.TOKEN_VARIABLE: ""}, "token"),
        ({"RANK": ""}, "torchrun"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR"),
    ],
)
def test_a_rank_says_what_is_missing_around_it(
    env: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    word: str,
) -> None:
    for name, value in {**TORCHRUN, engine.TOKEN_VARIABLE: "secret", **changes}.items():
        env.setenv(name, value)
    assert word in refusal(capsys, "rank", "--supervisor", "127.0.0.1:1")


@pytest.mark.parametrize("text", ["nowhere", ":80", "host:", "host:http", "host:70000"])
def test_an_address_needs_host_and_port(text: str) -> None:
    with pytest.raises(Refusal, match="host:port"):
        engine.address(text)
    assert engine.address("[::1]:80") == ("::1", 80)


def test_a_token_comes_from_a_file_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    env = {engine.TOKEN_VARIABLE: "from-env"}
    assert engine.rank_token(tmp_path / "token", env) == "from-file"
    assert engine.rank_token(None, env) == "from-env"
    with pytest.raises(Refusal, match="cannot be read"):
        engine.rank_token(tmp_path / "none", env)


def test_a_token_is_never_an_argument() -> None:
    for command in (rank, engine):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        assert "--rank-token " not in parser.format_help()
        assert "--rank-token-file" in parser.format_help()


def test_an_engine_for_external_ranks_needs_their_token(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = refusal(capsys, "engine", "--external-ranks", "2", "--port", "0")
    assert "RINGWAY_RANK_TOKEN" in words


def test_an_engine_for_external_ranks_needs_their_kv_budget() -> None:
    config = EngineConfig(model_dir=default_model_dir(), model_name="m")
    with pytest.raises(ValueError, match="--kv-budget"):
        build_supervisor(config, door=RankDoor(host="0.0.0.0", port=0, token="secret"))
