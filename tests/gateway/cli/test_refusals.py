"""Bad input to any command: one sentence on standard error, exit code 2, no traceback."""

from pathlib import Path

import pytest

from gateway.cli.main import main
from gateway.cli.up import find_policy


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "file"
    path.write_text("no folder")
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        ("up", "--port", "0", "--data-dir"),
        ("serve", "--port", "0", "--data-dir"),
        ("ingest", "--port", "0", "--data-dir"),
        ("keys", "list", "--data-dir"),
        ("keys", "create", "--name", "x", "--data-dir"),
        ("index", "migrate", "--data-dir"),
        ("synth", "--tokens", "500", "--out"),
        ("eval", "--model", "tiny", "--base-url", "http://127.0.0.1:9/v1", "--out"),
        ("calibrate",),
    ],
)
def test_a_file_where_a_folder_belongs_is_refused_in_a_sentence(
    words: tuple[str, ...], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, file]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"ringway {words[0]}: ")
    assert file in told
    assert told.count("\n") == 1
    assert "Errno" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model", "/no/such/model.gguf"), "/no/such/model.gguf"),
        (("--host", "0.0.0.0"), "--insecure"),
        (("--kv-budget", "100TiB"), "of memory; "),
        (("--segment-disk", "lots"), "--segment-disk: 'lots' is no size"),
        (("--ranks", "0"), "--ranks must be at least 1"),
    ],
)
def test_up_refuses_what_it_cannot_do_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    assert main(["up", "--port", "0", "--data-dir", str(tmp_path / "data"), *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "data" / "logs").exists()


def test_an_index_is_not_made_where_none_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert main(["index", "migrate", "--data-dir", str(missing)]) == 2
    assert f"{missing} is no data folder" in capsys.readouterr().err
    assert not missing.exists()


@pytest.mark.parametrize("named", [True, False], ids=["named", "the data folder's own"])
def test_a_bad_policy_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], named: bool
) -> None:
    policy = tmp_path / "ringway.yaml"
    policy.write_text("auto: {full: 3}")
    given = ("--policy", str(policy)) if named else ()
    assert main(["up", "--port", "0", "--data-dir", str(tmp_path), *given]) == 2
    assert "unknown key 'auto.full'" in capsys.readouterr().err
    assert not (tmp_path / "logs").exists()


def test_a_good_policy_of_the_data_folder_is_found(tmp_path: Path) -> None:
    assert find_policy(None, tmp_path) is None
    policy = tmp_path / "ringway.yaml"
    policy.write_text("auto: {full_max_tokens: 3}")
    assert find_policy(None, tmp_path) == policy
