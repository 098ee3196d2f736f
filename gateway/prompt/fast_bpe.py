"""A model's byte-level BPE run by tiktoken, then by a kernel of our own: many times as fast, and
equal where it says so.

Knows tokenizer.json. What it cannot prove equal it does not encode: a whole tokenizer by `build`
giving None, a single text by `encode` giving None.
"""

import re
import unicodedata
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NotRequired, TypedDict

import msgspec
import tiktoken
from tokenizers import Tokenizer

from gateway.api import InvalidRequest
from gateway.prompt.compiled.compiling import Compiling
from gateway.prompt.detokenize import byte_alphabet
from gateway.prompt.expressions import NEVER, Splitter, expression_of
from gateway.prompt.seams import Seams

BORDERLESS_CHARS = 131_072
LONG_SPACE = re.compile(r"\s{8192}")
"""tiktoken's regular expressions keep a state per character of a run of spaces and give up at a
million; such a run has no border, so only a longer block can hold one."""

RANKED = "ranked_by_id"
"""Marks a tokenizer.json without merges: whatever two tokens make a third are merged, by its id.
tiktoken is then no shortcut but the definition."""

SEAM = "\U0010fffd"
SEAM_BYTES = SEAM.encode()
SEAM_ID = 0x7F7F7F7F
SEAM_ID_BYTES = SEAM_ID.to_bytes(4, "little")
"""No byte of it is 0, as the highest of every real id is: found among ids, it is a seam."""
SEAM_ONLY = frozenset([SEAM])


class AddedToken(TypedDict):
    id: int
    content: str
    special: bool
    single_word: NotRequired[bool]
    lstrip: NotRequired[bool]
    rstrip: NotRequired[bool]


class BpeModel(TypedDict):
    type: NotRequired[str]
    vocab: dict[str, int]
    merges: list[str | list[str]]
    dropout: NotRequired[float | None]
    unk_token: NotRequired[str | None]
    continuing_subword_prefix: NotRequired[str | None]
    end_of_word_suffix: NotRequired[str | None]
    byte_fallback: NotRequired[bool]
    ignore_merges: NotRequired[bool]
    ranked_by_id: NotRequired[bool]


class Normalizer(TypedDict):
    type: str


class BpeFile(TypedDict):
    """Of tokenizer.json what matters here."""

    model: BpeModel
    added_tokens: list[AddedToken]
    pre_tokenizer: Splitter | None
    normalizer: NotRequired[Normalizer | None]


@dataclass(frozen=True, slots=True)
class Marked:
    """An encoding of texts with seams, for whose expression no look-ahead is needed."""

    seams: Seams
    encoding: tiktoken.Encoding

    @classmethod
    def of(cls, pattern: str, ranks: Mapping[bytes, int]) -> "Marked | None":
        seams = Seams.of(pattern)
        if seams is None:
            return None
        special = {SEAM: SEAM_ID}
        encoding = tiktoken.Encoding(
            "marked", pat_str=seams.pattern, mergeable_ranks=dict(ranks), special_tokens=special
        )
        return cls(seams, encoding)

    def encode(self, text: str, raw: bytes) -> "array[int] | None":
        """None for a text that must be split by the original expression."""
        if SEAM_BYTES in raw:
            return None
        marked = self.seams.mark(text, raw, SEAM_BYTES)
        if marked is None:
            return None
        ids = bytes(self.encoding._core_bpe.encode_to_tiktoken_buffer(marked, SEAM_ONLY))
        return _ids(ids.replace(SEAM_ID_BYTES, b""))


@dataclass(frozen=True, slots=True, kw_only=True)
class FastBpe:
    encoding: tiktoken.Encoding
    marked: Marked | None
    added: frozenset[str]
    """Tokens that are found in text although they are not of the BPE."""
    unknown: bytes
    """Bytes without a token; the model's tokenizer drops them."""
    composes: bool
    """Whether texts are normalised to NFC first."""
    token_bytes: Mapping[int, bytes]
    defines: bool
    """Whether there is nothing to compare with."""
    compiled: Compiling
    """Takes over once it is ready."""

    @classmethod
    def build(cls, tokenizer_json: bytes) -> "FastBpe | None":
        """None for a tokenizer of another kind. The caller compares canaries."""
        try:
            file = msgspec.json.decode(tokenizer_json, type=BpeFile)
        except msgspec.ValidationError:
            return None
        pattern = expression_of(file["pre_tokenizer"])
        normalizer = file.get("normalizer")
        is_known = normalizer is None or normalizer["type"] == "NFC"
        if pattern is None or not is_known or not _is_plain(file):
            return None
        token_bytes = _token_bytes(file)
        ranks = {spelled: index for index, spelled in token_bytes.items()}
        defines = file["model"].get("ranked_by_id", False)
        if not defines and not _ranks_are_merges(file, token_bytes):
            return None
        added = [one for one in file["added_tokens"] if not one["special"]]
        unknown = bytes(byte for byte in range(256) if bytes((byte,)) not in ranks)
        spare = 1 + max([*ranks.values(), *(one["id"] for one in file["added_tokens"])])
        ranks |= {bytes((byte,)): spare + i for i, byte in enumerate(unknown)}
        specials = {one["content"]: one["id"] for one in added}
        return cls(
            encoding=tiktoken.Encoding(
                "model",
                pat_str=pattern,
                mergeable_ranks=ranks,
                special_tokens={**specials, NEVER: spare + len(unknown)},
            ),
            marked=Marked.of(pattern, ranks),
            added=frozenset(specials),
            unknown=unknown,
            composes=normalizer is not None,
            defines=defines,
            compiled=Compiling(pattern, {token: i for i, token in token_bytes.items()}),
            token_bytes={**token_bytes, **{i: text.encode() for text, i in specials.items()}},
        )

    def encode(self, text: str, raw: bytes) -> "array[int] | None":
        """`raw` is the text in UTF-8. None: only the model's own tokenizer knows. Lets the GIL
        go."""
        if self.composes and not raw.isascii() and not unicodedata.is_normalized("NFC", text):
            return None
        is_plain = not any(one in text for one in self.added)
        ids = self.compiled.encode(raw) if is_plain else None
        return self._by_tiktoken(text, raw, marks=is_plain) if ids is None else ids

    def start_compiling(self) -> None:
        """In a thread; once it is done, encoding takes a third of the time."""
        self.compiled.start(self._without_added)

    def _without_added(self, text: str) -> "array[int] | None":
        """By the original expression; added tokens in the text are characters."""
        return None if self._holds_unknown(text.encode()) else self._original(text, frozenset())

    def _by_tiktoken(self, text: str, raw: bytes, *, marks: bool) -> "array[int] | None":
        if self._holds_unknown(raw):
            return None
        if len(text) > BORDERLESS_CHARS and _has_long_space(text):
            return None
        found = self.marked.encode(text, raw) if self.marked is not None and marks else None
        return self._original(text, self.added) if found is None else found

    def _original(self, text: str, added: frozenset[str]) -> "array[int]":
        # The public way to the ids without a Python list needs numpy.
        return _ids(bytes(self.encoding._core_bpe.encode_to_tiktoken_buffer(text, added)))

    def _holds_unknown(self, raw: bytes) -> bool:
        return bool(self.unknown) and len(raw.translate(None, self.unknown)) < len(raw)

    def encode_known(self, text: str) -> "array[int]":
        """Where tiktoken is the definition. Raises InvalidRequest for what it cannot split."""
        ids = self.encode(text, text.encode())
        if ids is None:
            raise InvalidRequest(
                "Invalid prompt: it has a run of more than 8192 blank characters in more than "
                f"{BORDERLESS_CHARS} characters without a word.",
                param="messages",
                code="invalid_value",
            )
        return ids


def _ids(raw: bytes) -> "array[int]":
    ids = array("i")
    ids.frombytes(raw)
    return ids


def _has_long_space(text: str) -> bool:
    step = BORDERLESS_CHARS
    return any(
        LONG_SPACE.search(text, at, at + step + 8192) is not None
        for at in range(0, len(text), step)
    )


def _is_plain(file: BpeFile) -> bool:
    """Whether nothing but vocabulary and merges decides, and added tokens are found as they are."""
    model = file["model"]
    if model.get("type", "BPE") != "BPE" or model.get("dropout") or model.get("byte_fallback"):
        return False
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return False
    added = [one for one in file["added_tokens"] if not one["special"]]
    if any(one.get("single_word") or one.get("lstrip") or one.get("rstrip") for one in added):
        return False
    names = [one["content"] for one in added]
    return not any(a != b and a in b for a in names for b in names)


def _token_bytes(file: BpeFile) -> dict[int, bytes]:
    letters = byte_alphabet()
    special = {one["content"] for one in file["added_tokens"]}
    return {
        index: bytes(letters[char] for char in name)
        for name, index in file["model"]["vocab"].items()
        if name not in special and all(char in letters for char in name)
    }


def _ranks_are_merges(file: BpeFile, token_bytes: Mapping[int, bytes]) -> bool:
    """Whether merging by token id is merging by the list of merges.

    It is when ids rise along the list and every token comes out of its own text: two neighbours
    whose union is a token can then only be met where the list merges them, too.
    """
    vocab = file["model"]["vocab"]
    merged = [
        "".join(one.split(" ") if isinstance(one, str) else one) for one in file["model"]["merges"]
    ]
    ids = [vocab.get(name, -1) for name in merged]
    if -1 in ids or any(a >= b for a, b in pairwise(ids)):
        return False
    bare = {
        "version": "1.0",
        "added_tokens": [],
        "model": {**file["model"], "type": "BPE", "ignore_merges": False},
    }
    alone = Tokenizer.from_buffer(msgspec.json.encode(bare))
    names = {index: name for name, index in vocab.items() if index in token_bytes}
    found = alone.encode_batch_fast(list(names.values()), add_special_tokens=False)
    return all(one.ids == [index] for index, one in zip(names, found, strict=True))
