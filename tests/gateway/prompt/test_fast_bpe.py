import base64
import hashlib
import os
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines.models.catalog import default_model_dir
from engines.models.folder import read_folder
from gateway.prompt.borders import CANARIES
from gateway.prompt.fast_bpe import FastBpe
from gateway.prompt.openai_encodings import ENCODINGS, OpenAIEncoding
from gateway.prompt.tokens import Cutting, TextEncoder
from tests.gateway.fakes import trained

DATA = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data"))
MAX_FILE_CHARS = 150_000
WORDS = ("the", " Fox", "'s", "'LL", "12", "3", "東京", "。", "é", "e\u0301", ",", "(x)", "A", "z;")
SPACES = ("\n", "\r\n", " ", "  ", "\t", "\u00a0", "\ufeff", "\x00", "\x04", "\x1d")
PIECES = st.sampled_from((*WORDS, *SPACES, "👩\u200d👧", "<|im_end|>", "\u2167"))
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=60).map("".join)


@cache
def tokenizer_json() -> bytes:
    return read_folder(default_model_dir()).tokenizer.tokenizer_json


@cache
def bundled() -> TextEncoder:
    return TextEncoder.build(tokenizer_json())


@cache
def small_blocks() -> TextEncoder:
    whole = bundled()
    return TextEncoder(
        whole.tokenizer,
        whole._plain,
        fast=whole.fast,
        cutting=Cutting(whole.border, 8),
        joins_exactly=True,
        memo_tokens=100_000,
    )


def theirs(text: str) -> list[int]:
    [encoding] = bundled()._plain.encode_batch_fast([text], add_special_tokens=False)
    return list(encoding.ids)


def test_the_bundled_model_is_counted_by_tiktoken_and_cut() -> None:
    assert bundled().fast is not None
    assert bundled().border is not None


@given(TEXTS)
@settings(max_examples=300, deadline=None)
@example("!\x04!  \x04 1 \x13")
def test_ids_and_places_are_those_of_the_models_own_tokenizer(text: str) -> None:
    encoded = small_blocks().encode(text)
    assert list(encoded.ids) == theirs(text)
    least = bundled().bound.least_tokens([text], enough=10**9)
    assert least <= encoded.num_tokens


@given(TEXTS.filter(bool), st.data())
@settings(max_examples=80, deadline=None)
def test_places_by_bytes_are_those_of_the_models_own_tokenizer(
    text: str, data: st.DataObject
) -> None:
    encoder = bundled()
    encoded = encoder.encode(text)
    [own] = encoder._plain.encode_batch([text], add_special_tokens=False)
    char = data.draw(st.integers(0, len(text) - 1))
    expected = next((i for i, (_, stop) in enumerate(own.offsets) if stop > char), len(own.ids))
    assert encoder.token_at(encoded, char) == expected
    for token, (start, _) in enumerate(own.offsets):
        assert encoder.char_at(encoded, token) == start


def test_every_text_of_the_shared_data_has_the_models_own_ids() -> None:
    files = sorted(
        path
        for path in DATA.rglob("*")
        if path.suffix in {".txt", ".json", ".jsonl", ".md", ".csv"}
    )
    if not files:
        pytest.skip(f"no texts under {DATA}")
    seen: set[str] = set()
    for path in files[:: max(1, len(files) // 60)]:
        text = path.read_text(errors="replace")[:MAX_FILE_CHARS]
        assert list(bundled().encode(text).ids) == theirs(text), path
        seen.add(path.suffix)
    assert seen


@pytest.mark.parametrize("filler", ["a", " ", "\n", "!", "東", "1", " \n"])
def test_a_long_run_of_one_character_is_exact_too(filler: str) -> None:
    text = f"x{filler * 140_000}y"[:150_000]
    assert list(bundled().encode(text).ids) == theirs(text)


def test_a_long_part_is_cut_the_same_whatever_stands_around_it() -> None:
    part = "".join(CANARIES) * 20
    encoder = bundled()
    first = encoder.encode(["Document 1: a\n\n", part, "\n\nWho?"])
    other = encoder.encode(["On other things.\n\n", part, " And why is it so?"])
    shared = {id(ids) for ids in first.block_ids} & {id(ids) for ids in other.block_ids}
    assert sum(len(ids) for ids in other.block_ids if id(ids) in shared) > 0.9 * other.num_tokens
    assert list(other.ids) == theirs(f"On other things.\n\n{part} And why is it so?")


def test_a_tokenizer_that_tiktoken_cannot_run_is_left_to_itself() -> None:
    file = msgspec.json.decode(trained().to_str())
    level = file["pre_tokenizer"]
    for change in (
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}},
        {"pre_tokenizer": {**level, "add_prefix_space": True}},
        {"model": {**file["model"], "merges": file["model"]["merges"][::-1]}},
        {"model": {**file["model"], "byte_fallback": True}},
    ):
        assert FastBpe.build(msgspec.json.encode({**file, **change})) is None
    assert FastBpe.build(msgspec.json.encode(file)) is not None


def test_an_encoding_of_openai_comes_from_its_folder_and_no_other_file_passes(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match=r"has no cl100k_base\.tiktoken"):
        ENCODINGS["cl100k_base"].tokenizer_json(tmp_path)
    (tmp_path / "cl100k_base.tiktoken").write_bytes(b"YQ== 0\n")
    with pytest.raises(ValueError, match="wrong SHA-256"):
        ENCODINGS["cl100k_base"].tokenizer_json(tmp_path)


def test_an_encoding_merges_by_rank_whatever_the_pair(tmp_path: Path) -> None:
    tokens = [*(bytes((byte,)) for byte in range(256)), b"bc", b"abc", b" x"]
    raw = b"".join(b"%b %d\n" % (base64.b64encode(one), i) for i, one in enumerate(tokens))
    (tmp_path / "tiny.tiktoken").write_bytes(raw)
    tiny = OpenAIEncoding(
        name="tiny",
        pattern=ENCODINGS["cl100k_base"].pattern,
        specials={"<|endoftext|>": 300},
        sha256=hashlib.sha256(raw).hexdigest(),
    )
    encoder = TextEncoder.build(tiny.tokenizer_json(tmp_path))
    assert list(encoder.encode("abc x<|endoftext|>").ids)[:2] == [257, 258]
    assert encoder.control_id("<|endoftext|>") == 300
    assert encoder.tokenizer.decode([257, 258]) == "abc x"
