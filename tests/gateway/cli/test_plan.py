"""`ringway plan` as a command: what it prints, its exit codes and its refusals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.main import main
from tests.engines.memory.published import GEMMA3_4B, LLAMA_8B, LLAMA_70B, Config


@pytest.fixture
def llama(tmp_path: Path) -> str:
    return write(tmp_path, LLAMA_8B)


def write(folder: Path, config: Config) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def plan(*words: str) -> int:
    return main(["plan", *words])


def test_it_prints_a_table_with_every_part_and_the_fewest_gpus(
    llama: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("--model", llama, "--context", "1M", "--gpu", "h100") == 0
    said = capsys.readouterr().out
    rows = {words[0]: words[1] for line in said.splitlines() if len(words := line.split()) > 1}
    assert rows["weights"] == "14.96"
    assert rows["kv"] == "42.67"
    assert {"ring", "activations", "runtime", "total"} <= set(rows)
    assert "131,072 bytes per token, 128.00 GiB in all" in said
    assert "fits 3 h100" in said
    assert "trained for 131,072 tokens" in said


def test_json_is_one_object_with_the_same_numbers(
    llama: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", llama, "--context", "1M", "--gpu", "h100", "--gpus", "4", "--json")
    assert plan(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["gpus"], told["smallest_gpus"], told["fits"]) == (4, 3, True)
    assert told["kv_bytes"] == 128 << 30
    parts = dict(told["bytes_per_gpu"])
    assert parts.pop("total") == sum(parts.values())
    assert parts["kv"] == 32 << 30


def test_what_does_not_fit_says_what_would_and_exits_1(
    llama: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("--model", llama, "--context", "1M", "--gpu", "h100", "--gpus", "2") == 1
    said = capsys.readouterr().out
    assert "does not fit 2 h100" in said
    assert "2 h100: a context of 9" in said
    assert "2 h100, KV in int8: the whole context" in said
    assert "2 h100, --tp 2: the whole context" in said
    assert "1 b200: the whole context" in said


def test_weights_that_no_ring_holds_are_said_to_be_too_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--model", write(tmp_path, LLAMA_70B), "--context", "128K", "--gpu", "l40s")
    assert plan(*words) == 1
    said = capsys.readouterr().out
    assert "without any KV it is too much already" in said
    assert "8 l40s, --tp 4: the whole context" in said


def test_sliding_windows_are_said_to_be_kept_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan("--model", write(tmp_path, GEMMA3_4B), "--context", "128K", "--gpu", "h100") == 0
    said = capsys.readouterr().out
    assert "29 of 34 layers look back at 1,024 tokens only, but KV keeps all positions" in said


def test_this_machine_is_a_device_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("starlette")
    tiny = {**LLAMA_8B, "num_hidden_layers": 1, "vocab_size": 100}
    words = ("--model", write(tmp_path, tiny), "--context", "1K", "--gpu", "cpu")
    assert plan(*words) == 0
    assert "fits this machine with 2 ranks" in capsys.readouterr().out
    assert plan(*words[:3], "1000000M", *words[4:]) == 1
    assert "2 ranks: a context of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--context", "1Q", "--gpu", "h100"), "'1Q' is no context"),
        (("--context", "0", "--gpu", "h100"), "'0' is no context"),
        (("--context", "1M", "--gpu", "tpu"), "unknown GPU 'tpu'; known: a100-40"),
        (("--context", "1M", "--gpu", "h100", "--gpus", "0"), "--gpus 0"),
        (("--context", "1M", "--gpu", "h100", "--tp", "0"), "--tp must be at least 1"),
        (("--context", "1M", "--gpu", "h100", "--tp", "3"), "--tp 3 must divide"),
        (("--context", "1M", "--gpu", "h100", "--tp", "2", "--gpus", "3"), "multiple of --tp 2"),
        (("--context", "1M", "--gpu", "h100", "--model", "nowhere"), "nowhere is no folder"),
        (("--context", "1M", "--gpu", "h100", "--model", "no.json"), "no readable file no.json"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    llama: str, words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = () if "--model" in words else ("--model", llama)
    assert plan(*words, *model) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize("body", ["[]", "{", '{"model_type": "llama"}'])
def test_a_config_that_is_none_is_refused(
    tmp_path: Path, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(body)
    assert plan("--model", str(tmp_path), "--context", "1K", "--gpu", "h100") == 2
    assert "config.json" in capsys.readouterr().err


def test_it_imports_neither_torch_nor_transformers(llama: str) -> None:
    code = (
        "import sys; from gateway.cli.main import main; "
        f"main(['plan', '--model', {llama!r}, '--context', '1M', '--gpu', 'cpu']); "
        "sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0
