"""`ringway index migrate`: its words, and what it refuses before it loads a model."""

import fcntl
from pathlib import Path

import pytest

from gateway.cli.index import outcome
from gateway.cli.main import main
from retrieval.migration import Migration


def test_the_outcome_is_said() -> None:
    moved = Migration(old="v1", new="v2", num_chunks=3, notes=("v1 is kept",))
    assert outcome(moved) == "3 chunks re-embedded: v1 -> v2\nv1 is kept"
    same = Migration(old="v1", new="v1", num_chunks=0)
    assert outcome(same) == "nothing to do: v1 is already what the configured embedder makes"


def test_a_folder_that_a_worker_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "ingest.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(["index", "migrate", "--data-dir", str(tmp_path)]) == 2
    assert "another ringway already works in" in capsys.readouterr().err


def test_a_bad_address_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGWAY_INGEST_OPENSEARCH_URL", "localhost:9200")
    assert main(["index", "migrate", "--data-dir", str(tmp_path)]) == 2
    assert "must begin with http" in capsys.readouterr().err
