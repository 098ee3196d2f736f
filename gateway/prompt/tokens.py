"""Text to token ids, exactly as the model's tokenizer does, in pieces that never hold the GIL long.

Knows no templates and no documents. All calls are blocking and thread-safe: use `to_thread`.

Special tokens in text are data here: `encode` never makes control tokens of them. Only
`control_id` does, and only the chat template's own words are looked up there.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokenizers import Tokenizer

from gateway.prompt.memo import TokenMemo

BLOCK_CHARS = 16_384
BATCH_BLOCKS = 8

BORDER = re.compile(r"(?<=[a-z])(?= [a-z])|(?<=\S\n)(?=[^\W\d_])")
"""Where cutting a text does not change its tokens: before a word's space, after a line's end.

True for every byte-level BPE that splits words before merging; `TextEncoder.build` proves it for
the tokenizer at hand on `CANARIES`, and cuts nothing where the proof fails.
"""

CANARIES = (
    "The quick brown fox, isn't it? I'll say: they've 12 345,67 items.\nNext line\n\n  indent\r\nx",
    "tabs\tand  double   spaces \n \n mixed\n\tend  ",
    "na\u00efve caf\u00e9 \u6771\u4eac\u90fd \u306f \u65e5\u672c\u8a9e \u3067\u3059\u3002\n"
    "\u4e2d\u6587 \u6587\u672c\n\u0645\u0631\u062d\u0628\u0627 \n\u043f\u0440 \u043c\u0438",
    "emoji \U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\u0301 a\u200bb\n\u00a0n\nz\x00b \ufffd",
    "def f(x):\n    return x['a'] + 's'\nclass A: pass\n# comment 's 't 'LL\n",
    "a b c d e f g\nh\ni j <|im_end|> k </s> l [MASK] m",
)
"""Words, contractions, numbers, whitespace runs, scripts, joined and combining characters, code."""


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text and its ids. Block i begins at `block_chars[i]`, and its ids at `block_tokens[i]`.

    `tokenizer` is the one that made them.
    """

    tokenizer: Tokenizer
    text: str
    ids: "array[int]"
    block_chars: tuple[int, ...]
    block_tokens: tuple[int, ...]


def cut(text: str, size: int) -> Iterator[str]:
    """Blocks of about `size` characters whose tokens, one after the other, are the text's."""
    start = 0
    while len(text) - start > size:
        border = BORDER.search(text, start + size)
        if border is None or border.start() >= len(text):
            break
        yield text[start : border.start()]
        start = border.start()
    if start < len(text):
        yield text[start:]


class TextEncoder:
    """`build` it. `block_chars` is None for a tokenizer whose texts must not be cut."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        plain: Tokenizer,
        *,
        block_chars: int | None,
        joins_exactly: bool,
        memo_tokens: int,
    ) -> None:
        self.tokenizer = tokenizer
        self._plain = plain
        self._block_chars = block_chars
        self.joins_exactly = joins_exactly
        """Whether pieces between control tokens may be encoded one by one."""
        self._memo = TokenMemo(memo_tokens)
        self.specials: Mapping[str, int] = _specials(tokenizer)
        self.max_token_bytes = _max_token_bytes(tokenizer)

    @classmethod
    def build(cls, tokenizer_json: bytes, *, memo_tokens: int = 4_000_000) -> "TextEncoder":
        """Slow: parses the vocabulary and checks the canaries."""
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        plain = Tokenizer.from_buffer(tokenizer_json)
        plain.no_truncation()
        plain.no_padding()
        plain.encode_special_tokens = True
        return cls(
            tokenizer,
            plain,
            block_chars=BLOCK_CHARS if _cuts_exactly(plain) else None,
            joins_exactly=_joins_exactly(tokenizer, plain),
            memo_tokens=memo_tokens,
        )

    @property
    def num_ids(self) -> int:
        return self.tokenizer.get_vocab_size(with_added_tokens=True)

    def control_id(self, special: str) -> int:
        return self.specials[special]

    def encode(self, text: str) -> EncodedText:
        """Ids of a text in which special tokens are plain characters."""
        size = self._block_chars
        blocks = [text] if size is None else list(cut(text, size))
        ids = array("i")
        chars: list[int] = []
        tokens: list[int] = []
        num_chars = 0
        for block, block_ids in zip(blocks, self._encode_blocks(blocks), strict=True):
            chars.append(num_chars)
            tokens.append(len(ids))
            ids.extend(block_ids)
            num_chars += len(block)
        return EncodedText(self._plain, text, ids, tuple(chars), tuple(tokens))

    def encode_whole(self, text: str) -> EncodedText:
        """Ids of a rendered prompt in one go: every special token in it is a control token."""
        [encoding] = self.tokenizer.encode_batch_fast([text], add_special_tokens=False)
        return EncodedText(self.tokenizer, text, array("i", encoding.ids), (0,), (0,))

    def holds_special(self, text: str) -> bool:
        return any(special in text for special in self.specials)

    def token_at(self, encoded: EncodedText, char: int) -> int:
        """Index of the token that holds character `char`; the number of tokens at the end."""
        if char >= len(encoded.text):
            return len(encoded.ids)
        block = bisect_right(encoded.block_chars, char) - 1
        within = char - encoded.block_chars[block]
        offsets = self._offsets(encoded, block)
        index = next(i for i, (_, stop) in enumerate(offsets) if stop > within)
        return encoded.block_tokens[block] + index

    def char_at(self, encoded: EncodedText, token: int) -> int:
        """First character of token `token`; the length of the text at the end."""
        if token >= len(encoded.ids):
            return len(encoded.text)
        block = bisect_right(encoded.block_tokens, token) - 1
        start, _ = self._offsets(encoded, block)[token - encoded.block_tokens[block]]
        return encoded.block_chars[block] + start

    def _offsets(self, encoded: EncodedText, block: int) -> list[tuple[int, int]]:
        """Encoding a block again costs milliseconds; keeping all offsets, 100 bytes a token."""
        start = encoded.block_chars[block]
        last = block + 1 == len(encoded.block_chars)
        stop = len(encoded.text) if last else encoded.block_chars[block + 1]
        [encoding] = encoded.tokenizer.encode_batch(
            [encoded.text[start:stop]], add_special_tokens=False
        )
        offsets: list[tuple[int, int]] = encoding.offsets
        return offsets

    def _encode_blocks(self, blocks: list[str]) -> list["array[int]"]:
        keys = [TokenMemo.key(block) for block in blocks]
        found = [self._memo.get(key) for key in keys]
        missing = [i for i, ids in enumerate(found) if ids is None]
        for first in range(0, len(missing), BATCH_BLOCKS):
            batch = missing[first : first + BATCH_BLOCKS]
            # encode() holds the GIL (4.6 s for 4 MB); encode_batch_fast() lets it go.
            encodings = self._plain.encode_batch_fast(
                [blocks[i] for i in batch], add_special_tokens=False
            )
            for i, encoding in zip(batch, encodings, strict=True):
                ids = array("i", encoding.ids)
                found[i] = ids
                self._memo.put(keys[i], ids)
        return [ids for ids in found if ids is not None]


def _specials(tokenizer: Tokenizer) -> dict[str, int]:
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: index for index, token in added.items() if token.special}


def _max_token_bytes(tokenizer: Tokenizer) -> int:
    """No token stands for more bytes of text than its own name has."""
    return max((len(token.encode()) for token in tokenizer.get_vocab()), default=1)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _cuts_exactly(plain: Tokenizer) -> bool:
    return all(
        _ids(plain, text) == [i for block in cut(text, 1) for i in _ids(plain, block)]
        for text in CANARIES
    )


def _joins_exactly(tokenizer: Tokenizer, plain: Tokenizer) -> bool:
    """Whether text around control tokens has the ids that it has alone."""
    for special, index in list(_specials(tokenizer).items())[:64]:
        for left, right in (("user\nHello there", "\n"), (" spaced ", " \n\nx"), ("a", "b")):
            whole = _ids(tokenizer, f"{special}{left}{special}{right}")
            pieces = [index, *_ids(plain, left), index, *_ids(plain, right)]
            if whole != pieces:
                return False
    return True
