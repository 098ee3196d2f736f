"""Text to token ids, exactly as the model's tokenizer does, in pieces that never hold the GIL long.

Knows no templates and no documents. All calls are blocking and thread-safe: use `to_thread`.

Special tokens in text are data here: `encode` never makes control tokens of them. Only
`control_id` does, and only the chat template's own words are looked up there.
"""

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

from tokenizers import Tokenizer

from gateway.prompt.borders import (
    CANARIES,
    cut,
    first_border,
    last_border,
    proven_border,
)
from gateway.prompt.bound import TokenBound
from gateway.prompt.fast_bpe import FastBpe
from gateway.prompt.memo import TokenMemo

BLOCK_CHARS = 16_384
BATCH_BLOCKS = 8

LONG_PART_CHARS = 8192
"""A part this long is cut by itself, so that its blocks are the same whatever stands around it."""

SEAM_CHARS = 2048
"""How far inside a long part its first and its last border are looked for."""

MEMO_CHARS = 1024
"""A shorter block is encoded faster than it is looked up."""


@dataclass(frozen=True, slots=True)
class Block:
    """Characters [start, stop) of `text`."""

    text: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def read(self) -> str:
        return self.text[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text and its ids. Block i begins at `block_chars[i]`, and its ids at `block_tokens[i]`.

    `tokenizer` is the one whose ids they are. The ids of a block belong to the memo, too.
    """

    tokenizer: Tokenizer
    num_chars: int
    num_tokens: int
    blocks: tuple[Block, ...]
    block_ids: tuple["array[int]", ...]
    block_chars: tuple[int, ...]
    block_tokens: tuple[int, ...]

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, blocks: Sequence[Block], ids: Sequence["array[int]"]
    ) -> "EncodedText":
        *chars, num_chars = accumulate((len(block) for block in blocks), initial=0)
        *tokens, num_tokens = accumulate(map(len, ids), initial=0)
        return cls(
            tokenizer, num_chars, num_tokens, tuple(blocks), tuple(ids), tuple(chars), tuple(tokens)
        )

    @property
    def ids(self) -> "array[int]":
        """All of them, in an array of their own."""
        joined = array("i")
        for one in self.block_ids:
            joined.extend(one)
        return joined


@dataclass(frozen=True, slots=True)
class Cutting:
    """Where and how often to cut; a `border` of None is for texts that must not be cut."""

    border: "re.Pattern[str] | None"
    block_chars: int = BLOCK_CHARS


class TextEncoder:
    """`build` it. `fast` is None where only the tokenizer itself is exact."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        plain: Tokenizer,
        *,
        fast: FastBpe | None = None,
        cutting: Cutting,
        joins_exactly: bool,
        memo_tokens: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.fast = fast
        self.border = cutting.border
        self.joins_exactly = joins_exactly
        """Whether pieces between control tokens may be encoded one by one."""
        self.specials: Mapping[str, int] = _specials(tokenizer)
        self.bound = _bound(tokenizer, fast)
        self._plain = plain
        self._block_chars = cutting.block_chars
        self._memo = TokenMemo(memo_tokens)
        self._token_lengths = {} if fast is None else _lengths(fast)
        self._threads = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "encode")

    @classmethod
    def build(cls, tokenizer_json: bytes, *, memo_tokens: int = 4_000_000) -> "TextEncoder":
        """Slow: parses the vocabulary and checks the canaries."""
        tokenizer = _unbounded(tokenizer_json)
        plain = _unbounded(tokenizer_json)
        plain.encode_special_tokens = True
        names = sorted(one.content for one in tokenizer.get_added_tokens_decoder().values())
        spoken = " ".join(f"{name} x{name}\n{name},{name}" for name in names[:256])
        fast = FastBpe.build(tokenizer_json)
        if fast is not None and not all(_agree(fast, plain, one) for one in (*CANARIES, spoken)):
            fast = None
        defined = fast if fast is not None and fast.defines else None
        return cls(
            tokenizer,
            plain,
            fast=fast,
            cutting=Cutting(
                proven_border(defined.encode_known if defined else _encode(plain), [spoken])
            ),
            joins_exactly=defined is not None or _joins_exactly(tokenizer, plain),
            memo_tokens=memo_tokens,
        )

    def start_compiling(self) -> None:
        """Returns at once; see `FastBpe.start_compiling`."""
        if self.fast is not None:
            self.fast.start_compiling()

    def wait_compiled(self, limit_s: float) -> None:
        """Until the compiled encoder is ready or never will be, but no longer."""
        if self.fast is not None:
            self.fast.compiled.wait(limit_s)

    @property
    def num_ids(self) -> int:
        return self.tokenizer.get_vocab_size(with_added_tokens=True)

    def control_id(self, special: str) -> int:
        return self.specials[special]

    def encode(self, text: str | Sequence[str]) -> EncodedText:
        """Ids of a text, or of the joined parts of one; special tokens in it are characters.

        A long part that came before is not encoded again, whatever stands around it now.
        """
        blocks = tuple(self._blocks((text,) if isinstance(text, str) else text))
        return EncodedText.of(self._plain, blocks, self._encode_blocks(blocks))

    def encode_whole(self, text: str) -> EncodedText:
        """Ids of a rendered prompt in one go: every special token in it is a control token."""
        [encoding] = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return EncodedText.of(
            self.tokenizer, [Block(text, 0, len(text))], [array("i", encoding.ids)]
        )

    def holds_special(self, text: str | Sequence[str]) -> bool:
        parts = (text,) if isinstance(text, str) else text
        return any(special in part for special in self.specials for part in parts)

    def token_at(self, encoded: EncodedText, char: int) -> int:
        """Index of the token that holds character `char`; the number of tokens at the end."""
        if char >= encoded.num_chars:
            return encoded.num_tokens
        block = bisect_right(encoded.block_chars, char) - 1
        within = char - encoded.block_chars[block]
        first = encoded.block_tokens[block]
        text = encoded.blocks[block].read()
        stops = self._byte_stops(encoded, block, text)
        if stops is not None:
            return first + bisect_right(stops, len(text[:within].encode()))
        offsets = _offsets(encoded.tokenizer, text)
        return first + next((i for i, (_, b) in enumerate(offsets) if b > within), len(offsets))

    def char_at(self, encoded: EncodedText, token: int) -> int:
        """First character of token `token`; the length of the text at the end."""
        if token >= encoded.num_tokens:
            return encoded.num_chars
        block = bisect_right(encoded.block_tokens, token) - 1
        within = token - encoded.block_tokens[block]
        first = encoded.block_chars[block]
        text = encoded.blocks[block].read()
        stops = self._byte_stops(encoded, block, text)
        if stops is None:
            return first + _offsets(encoded.tokenizer, text)[within][0]
        before = text.encode()[: stops[within - 1] if within else 0]
        # A token that begins inside a character is said to begin with it.
        return first + len(before.decode(errors="ignore"))

    def _byte_stops(self, encoded: EncodedText, block: int, text: str) -> list[int] | None:
        """Bytes of the block up to the end of each token; None where tokens are not its bytes."""
        if self.fast is None or encoded.tokenizer is not self._plain:
            return None
        lengths = (self._token_lengths.get(one, 0) for one in encoded.block_ids[block])
        stops = list(accumulate(lengths))
        return stops if stops and stops[-1] == len(text.encode()) else None

    def _blocks(self, parts: Sequence[str]) -> Iterator[Block]:
        border = self.border
        if border is None:
            yield from _whole("".join(parts))
            return
        seam: list[str] = []
        for part in parts:
            inner = _inner(part, border) if len(part) >= LONG_PART_CHARS else None
            if inner is None:
                seam.append(part)
                continue
            yield from self._cut("".join((*seam, part[: inner[0]])), border)
            for start, stop in cut(part, self._block_chars, border, *inner):
                yield Block(part, start, stop)
            seam = [part[inner[1] :]]
        yield from self._cut("".join(seam), border)

    def _cut(self, text: str, border: "re.Pattern[str]") -> Iterator[Block]:
        for start, stop in cut(text, self._block_chars, border):
            yield Block(text, start, stop)

    def _encode_blocks(self, blocks: Sequence[Block]) -> list["array[int]"]:
        keys = [
            TokenMemo.key(block.read().encode()) if len(block) >= MEMO_CHARS else b""
            for block in blocks
        ]
        found = [self._memo.get(key) if key else None for key in keys]
        missing = [i for i, ids in enumerate(found) if ids is None]
        groups = [missing[i : i + BATCH_BLOCKS] for i in range(0, len(missing), BATCH_BLOCKS)]
        tasks = ([blocks[i] for i in group] for group in groups)
        run = self._threads.map if len(groups) > 1 else map
        for group, encoded in zip(groups, run(self._encode_group, tasks), strict=True):
            for i, ids in zip(group, encoded, strict=True):
                found[i] = ids
                if keys[i]:
                    self._memo.put(keys[i], ids)
        return [ids for ids in found if ids is not None]

    def _encode_group(self, blocks: Sequence[Block]) -> list["array[int]"]:
        texts = [block.read() for block in blocks]
        if self.fast is not None and self.fast.defines:
            return [self.fast.encode_known(text) for text in texts]
        found = [
            None if self.fast is None else self.fast.encode(text, text.encode()) for text in texts
        ]
        left = [i for i, ids in enumerate(found) if ids is None]
        if left:
            # encode() holds the GIL (4.6 s for 4 MB); encode_batch_fast() lets it go.
            encodings = self._plain.encode_batch_fast(
                [texts[i] for i in left], add_special_tokens=False
            )
            for i, encoding in zip(left, encodings, strict=True):
                found[i] = array("i", encoding.ids)
        return [ids for ids in found if ids is not None]


def _whole(text: str) -> Iterator[Block]:
    if text:
        yield Block(text, 0, len(text))


def _inner(part: str, border: "re.Pattern[str]") -> tuple[int, int] | None:
    """The first and the last border of a long part, away from what stands around it."""
    first = first_border(part, 2, SEAM_CHARS, border)
    last = last_border(part, len(part) - SEAM_CHARS, border)
    return None if first is None or last is None else (first, last)


def _unbounded(tokenizer_json: bytes) -> Tokenizer:
    tokenizer = Tokenizer.from_buffer(tokenizer_json)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _agree(fast: FastBpe, plain: Tokenizer, text: str) -> bool:
    ids = fast.encode(text, text.encode())
    return fast.defines or ids is None or list(ids) == _ids(plain, text)


def _specials(tokenizer: Tokenizer) -> dict[str, int]:
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in added.items() if token.special}


def _lengths(fast: FastBpe) -> dict[int, int]:
    return {index: len(spelled) for index, spelled in fast.token_bytes.items()}


def _bound(tokenizer: Tokenizer, fast: FastBpe | None) -> TokenBound:
    if fast is not None:
        return TokenBound.of(
            fast.token_bytes.values(), unknown=fast.unknown, composes=fast.composes
        )
    # No token stands for more bytes of text than its own name has.
    longest = max((len(token.encode()) for token in tokenizer.get_vocab()), default=1)
    return TokenBound(max_token_bytes=longest)


def _offsets(tokenizer: Tokenizer, text: str) -> list[tuple[int, int]]:
    """Encoding a block again costs milliseconds; keeping all offsets, 100 bytes a token."""
    [encoding] = tokenizer.encode_batch([text], add_special_tokens=False)
    offsets: list[tuple[int, int]] = encoding.offsets
    return offsets


def _encode(tokenizer: Tokenizer) -> Callable[[str], list[int]]:
    return lambda text: _ids(tokenizer, text)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    [encoding] = tokenizer.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = encoding.ids
    return ids


def _joins_exactly(tokenizer: Tokenizer, plain: Tokenizer) -> bool:
    """Whether text around control tokens has the ids that it has alone."""
    for special, index in list(_specials(tokenizer).items())[:64]:
        for left, right in (("user\nHello there", "\n"), (" spaced ", " \n\nx"), ("a", "b")):
            whole = _ids(tokenizer, f"{special}{left}{special}{right}")
            pieces = [index, *_ids(plain, left), index, *_ids(plain, right)]
            if whole != pieces:
                return False
    return True
