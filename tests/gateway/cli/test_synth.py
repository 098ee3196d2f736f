"""`ringway synth` as a command: what it writes, says and refuses."""

import argparse
import hashlib
from pathlib import Path

import pytest

from gateway.cli import synth
from gateway.cli.main import Refusal
from ingest.synth.api import load_key


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    synth.add_arguments(parser)
    return synth.run(parser.parse_args(words))


def test_it_writes_the_documents_and_a_key_that_fits_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "case"
    assert run("--out", str(out), "--tokens", "9000", "--documents", "2", "--seed", "4") == 0
    key = load_key(out / "answer_key.json")
    assert [file.name for file in key.files] == ["case_4_volume_01.txt", "case_4_volume_02.txt"]
    for file in key.files:
        body = (out / file.name).read_bytes()
        assert hashlib.sha256(body).hexdigest() == file.sha256
        assert len(body.decode()) == file.num_chars
    for question in key.questions:
        text = (out / question.place.file).read_bytes().decode()
        assert text[question.place.start : question.place.stop] == question.place.sentence
    said = capsys.readouterr()
    assert "about" in said.out
    assert "estimate" in said.out
    assert said.err == ""


@pytest.mark.parametrize("kind", ["txt", "md", "html"])
def test_the_format_is_the_files_ending(tmp_path: Path, kind: str) -> None:
    assert run("--out", str(tmp_path), "--tokens", "2000", "--format", kind) == 0
    assert (tmp_path / f"case_0.{kind}").exists()


def test_an_earlier_case_file_is_not_written_over_unless_forced(tmp_path: Path) -> None:
    words = ("--out", str(tmp_path), "--tokens", "2000")
    assert run(*words) == 0
    before = (tmp_path / "answer_key.json").read_bytes()
    with pytest.raises(Refusal, match="--force"):
        run(*words, "--facts", "1")
    assert (tmp_path / "answer_key.json").read_bytes() == before
    assert run(*words, "--facts", "1", "--force") == 0
    assert len(load_key(tmp_path / "answer_key.json").questions) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--tokens", "10"), "too few"),
        (("--tokenizer", "missing.json"), "missing.json"),
        (("--facts", "1000"), "between 0 and 64"),
    ],
)
def test_what_cannot_be_done_is_one_clear_sentence(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(Refusal, match=sentence):
        run("--out", str(tmp_path), *words)
    assert list(tmp_path.iterdir()) == []
