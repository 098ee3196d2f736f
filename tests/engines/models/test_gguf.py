import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from engines.api import ModelMissing
from engines.models import catalog
from engines.models.catalog import default_model_dir, resolve_model
from engines.models.folder import read_folder
from engines.models.gguf import GgufSource, converted_folder


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "Broken Model.gguf"
    path.write_bytes(b"GGUF but not really")
    return path


@pytest.mark.timeout(90)
def test_a_file_that_is_no_gguf_leaves_nothing_behind(broken: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(ModelMissing, match="cannot be converted"):
        converted_folder(GgufSource.of_file(broken), cache)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_a_pinned_file_that_was_changed_is_not_converted(broken: Path, tmp_path: Path) -> None:
    pinned = GgufSource(path=broken, name="pinned", digest="0" * 64, is_pinned=True)
    with pytest.raises(ModelMissing, match="damaged"):
        converted_folder(pinned, tmp_path / "cache")


def test_a_folder_that_is_there_is_not_made_again(broken: Path, tmp_path: Path) -> None:
    source = GgufSource.of_file(broken)
    made = tmp_path / f"broken-model-{source.digest[:12]}-f1"
    made.mkdir()
    assert converted_folder(source, tmp_path) == made


def test_leftovers_of_a_killed_conversion_are_cleared_by_the_next(
    broken: Path, tmp_path: Path
) -> None:
    source = GgufSource.of_file(broken)
    leftover = tmp_path / f"broken-model-{source.digest[:12]}-f1.part-x"
    leftover.mkdir()
    (leftover / "model.safetensors").touch()
    made = converted_folder(source, tmp_path, lambda _, part: (part / "config.json").touch())
    assert not leftover.exists()
    assert [path.name for path in made.iterdir()] == ["config.json"]


def test_files_that_differ_only_in_their_last_byte_have_other_digests(tmp_path: Path) -> None:
    digests = []
    for last in b"ab":
        path = tmp_path / "m.gguf"
        path.write_bytes(bytes(3 << 20) + bytes([last]))
        digests.append(GgufSource.of_file(path).digest)
    assert digests[0] != digests[1]


def test_two_processes_that_want_the_same_folder_convert_it_once(tmp_path: Path) -> None:
    code = """
        import sys, time
        from pathlib import Path
        from engines.models.gguf import GgufSource, converted_folder

        def convert(source, target):
            with (target.parent / "count").open("a") as count:
                count.write("x")
            time.sleep(0.3)

        source = GgufSource(path=Path("m"), name="m", digest="d" * 64)
        converted_folder(source, Path(sys.argv[1]), convert)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    racing = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in racing] == [0, 0]
    assert (tmp_path / "count").read_text() == "x"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("no/such/thing/here", "no folder"),
        ("missing.gguf", "there is no file"),
        ("what is this?", "no folder"),
    ],
)
def test_a_model_that_cannot_be_found_is_one_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(ModelMissing, match=sentence):
        resolve_model(spec)


def test_a_folder_is_served_under_its_own_name(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    assert resolve_model(str(folder)) == catalog.Model("my-model", folder)


def test_a_hub_id_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelMissing, match="nobody/nothing-at-all"):
        resolve_model("nobody/nothing-at-all")


@pytest.mark.timeout(180)
def test_the_default_model_is_converted_with_the_tokenizer_it_was_trained_with() -> None:
    pytest.importorskip("torch")
    folder = read_folder(default_model_dir())
    assert folder.shape.window_tokens == 8192
    assert folder.tokenizer.stop_ids == (0, 2)
    assert folder.tokenizer.special_tokens["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in folder.tokenizer.chat_template
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_buffer(folder.tokenizer.tokenizer_json)
    pieces = tokenizer.encode("Lot 4711, page 20", add_special_tokens=False).tokens
    assert pieces == ["L", "ot", "Ġ", "4", "7", "1", "1", ",", "Ġpage", "Ġ", "2", "0"]
    config = json.loads((folder.path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in config
