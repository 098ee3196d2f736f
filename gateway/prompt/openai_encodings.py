"""OpenAI's own encodings from a local folder, as a tokenizer.json; never from the network.

Knows tiktoken's files and patterns. A million merges would say the same to `tokenizers`, at the
cost of many seconds, so there are none: only tiktoken encodes with such a file. The folder holds
`<encoding>.tiktoken`, or is a cache of tiktoken's. Blocking, a second: use `to_thread`.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gateway.prompt.detokenize import byte_alphabet
from gateway.prompt.fast_bpe import RANKED

ADDRESS = "https://openaipublic.blob.core.windows.net/encodings"
"""Only as a name: tiktoken's cache calls a file by the SHA-1 of its address."""

CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{SUFFIX}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{SUFFIX}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIEncoding:
    """`sha256` is of its file; another file is refused."""

    name: str
    pattern: str
    specials: Mapping[str, int]
    sha256: str

    def tokenizer_json(self, folder: Path, more_specials: Mapping[str, int] | None = None) -> bytes:
        """Raises ValueError, with a sentence for people, for a file that is missing or another.

        `more_specials` are further control tokens, such as those of a chat template.
        """
        ranks = dict(_ranks(self._read(folder), self.name))
        letters = {byte: letter for letter, byte in byte_alphabet().items()}
        names = {token: "".join(letters[byte] for byte in token) for token in ranks}
        specials = {**self.specials, **(more_specials or {})}
        file = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_special(index, text) for text, index in specials.items()],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": _splitters(self.pattern)},
            "post_processor": None,
            "decoder": {"type": "ByteLevel"} | dict.fromkeys(LEVEL, True),
            "model": {
                "type": "BPE",
                "vocab": {names[token]: rank for token, rank in ranks.items()} | specials,
                "merges": [],
                RANKED: True,
            },
        }
        return msgspec.json.encode(file)

    def _read(self, folder: Path) -> bytes:
        address = f"{ADDRESS}/{self.name}.tiktoken"
        cached = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
        for path in (folder / f"{self.name}.tiktoken", folder / cached):
            if path.is_file():
                raw = path.read_bytes()
                if hashlib.sha256(raw).hexdigest() != self.sha256:
                    raise ValueError(f"{path} is not the encoding {self.name}: wrong SHA-256")
                return raw
        raise ValueError(f"{folder} has no {self.name}.tiktoken")


ENCODINGS = {
    one.name: one
    for one in (
        OpenAIEncoding(
            name="cl100k_base",
            pattern=CL100K,
            specials={
                "<|endoftext|>": 100257,
                "<|fim_prefix|>": 100258,
                "<|fim_middle|>": 100259,
                "<|fim_suffix|>": 100260,
                "<|endofprompt|>": 100276,
            },
            sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        ),
        OpenAIEncoding(
            name="o200k_base",
            pattern=O200K,
            specials={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
            sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        ),
    )
}

LEVEL = ("add_prefix_space", "trim_offsets", "use_regex")


def _splitters(pattern: str) -> list[dict[str, object]]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return [{**split, "invert": False}, {"type": "ByteLevel"} | dict.fromkeys(LEVEL, False)]


def _special(index: int, text: str) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": text, **flags, "special": True}


def _ranks(raw: bytes, name: str) -> Iterator[tuple[bytes, int]]:
    for line in raw.splitlines():
        token, _, rank = line.partition(b" ")
        try:
            yield base64.b64decode(token, validate=True), int(rank)
        except (binascii.Error, ValueError):
            raise ValueError(f"a line of {name}.tiktoken cannot be read") from None
