import hashlib
import json
from pathlib import Path

import pytest

from engines.api import ModelMissing
from engines.fake import byte_tokenizer
from engines.models.folder import read_folder

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 258,
    "max_position_embeddings": 128,
    "eos_token_id": [3, 4],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "config.json", CONFIG)
    (tmp_path / "tokenizer.json").write_bytes(byte_tokenizer().tokenizer_json)
    (tmp_path / "model.safetensors").touch()
    return tmp_path


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def test_stop_ids_come_from_both_configs_and_from_the_known_end_of_turn(folder: Path) -> None:
    write(folder / "generation_config.json", {"eos_token_id": 9})
    assert read_folder(folder).tokenizer.stop_ids == (3, 4, 9, 257)


def test_the_template_file_goes_before_the_template_in_the_tokenizer_config(folder: Path) -> None:
    write(folder / "tokenizer_config.json", {"chat_template": "old"})
    assert read_folder(folder).tokenizer.chat_template == "old"
    (folder / "chat_template.jinja").write_text("new")
    assert read_folder(folder).tokenizer.chat_template == "new"


def test_of_several_named_templates_the_default_is_taken(folder: Path) -> None:
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    write(folder / "tokenizer_config.json", {"chat_template": named})
    assert read_folder(folder).tokenizer.chat_template == "d"


def test_a_base_model_has_an_empty_template(folder: Path) -> None:
    assert read_folder(folder).tokenizer.chat_template == ""


def test_special_tokens_may_be_texts_or_objects(folder: Path) -> None:
    write(folder / "special_tokens_map.json", {"unk_token": "<u>", "bos_token": "old"})
    write(
        folder / "tokenizer_config.json",
        {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": None},
    )
    assert read_folder(folder).tokenizer.special_tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<u>",
    }


def test_the_digest_changes_with_tokenizer_template_and_stop_ids(folder: Path) -> None:
    digests = {read_folder(folder).tokenizer.digest}
    (folder / "chat_template.jinja").write_text("x")
    digests.add(read_folder(folder).tokenizer.digest)
    write(folder / "generation_config.json", {"eos_token_id": 9})
    digests.add(read_folder(folder).tokenizer.digest)
    (folder / "tokenizer.json").write_text('{"added_tokens": [{"id": 257, "content": "</s>"}]}')
    digests.add(read_folder(folder).tokenizer.digest)
    assert len(digests) == 4
    assert all(len(digest) == hashlib.sha256().digest_size * 2 for digest in digests)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_refused_by_its_name(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelMissing, match=missing.removeprefix("model")):
        read_folder(folder)


@pytest.mark.parametrize("body", ["{", "[]", '{"model_type": "clip"}'])
def test_a_config_that_describes_no_model_is_refused(folder: Path, body: str) -> None:
    (folder / "config.json").write_text(body)
    with pytest.raises(ModelMissing):
        read_folder(folder)
