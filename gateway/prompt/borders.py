"""Where a text may be cut without changing its tokens, and how a tokenizer proves it.

Knows texts and regular expressions only; whoever holds a tokenizer brings its `encode`.
"""

import re
from collections.abc import Callable, Iterator, Sequence

CANDIDATES = (
    r"(?<=[a-z])(?= [a-z])",
    r"(?<=\S\n)(?=[^\W_])",
    r"(?<=[^\W_])(?=[,;:()\[\]{}\"、。，！？；：])",  # noqa: RUF001 - these very characters
)
"""Before a word's space, after a line's end, before a mark that follows a letter or digit.

True for byte-level BPE that splits words before merging. Each counts only where it is proven for
the tokenizer at hand.
"""

WINDOW_CHARS = 65_536
"""A regular expression holds the GIL while it searches; this much is well under a millisecond."""

CANARIES = (
    "The quick brown fox, isn't it? I'll say: they've 12 345,67 items.\nNext line\n\n  indent\r\nx",
    "tabs\tand  double   spaces \n \n mixed\n\tend  ",
    "na\u00efve caf\u00e9 \u6771\u4eac\u90fd \u306f \u65e5\u672c\u8a9e \u3067\u3059\u3002\n"
    "\u4e2d\u6587\uff0c\u6587\u672c\u3002\u7d42\n\u0645\u0631\u062d\u0628\u0627 \n\u043f\u0440"
    " \u043c\u0438 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22 \ud55c\uad6d\uc5b4 \u0939\u093f",
    "emoji \U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\u0301 a\u200bb\n\u00a0n\nz\x00b \ufffd",
    "def f(x):\n    return x['a'] + 's'\nclass A: pass\n# comment 's 't 'LL 're 'VE\n",
    "a b c d e f g\nh\ni j <|im_end|> k </s> l [MASK] m",
    'ID,total\n1,2,3\n12345,6.78e-9\n{"a":[1,"b",null],"Key-X":"v;w"}\nf(a)(b)[c]{d}',
    "\x01\x02\x04 a\x04b \x1b[0m\x7f\x80\x9f \ufeffbom \u2028\u2029 \x0b\x0c\x1c\x85 x\ry\r\n\r\nz",
    "    " * 40 + "deep\n" + "\n" * 70 + "\t" * 30 + "  tail \t ",
    "\u0660\u0661 \u00bd \u2167 \u2460 1st 2nd 3\u00b2 x1y22z333 4444 55555 \u4e09\u5341",
    "CamelCase snake_case kebab-case SHOUT http://a.b/c?d=e&f=%20 user@host $1,000.00 50% #tag",
    "Don't DON'T won\u2019t 'tis rock'n'roll 's's's ''s 1's 'sing it'd d'l",
    "\U00020000\U000e0001\U0010fffd\ue000\ud7ff\uffff \U0001d400\u0130\u0131\u1e9e",
)
"""Words, contractions, numbers, whitespace runs, scripts, joined and combining characters, code,
tables, control characters, digits of all kinds, edges of Unicode's planes."""

Encode = Callable[[str], Sequence[int]]


def proven_border(encode: Encode, more: Sequence[str] = ()) -> "re.Pattern[str] | None":
    """The candidates that hold for a tokenizer on CANARIES and on `more`; None: cut nothing."""
    texts = (*CANARIES, *more)
    whole = {text: list(encode(text)) for text in texts}

    def holds(pattern: str) -> bool:
        border = re.compile(pattern)
        return all(
            [i for start, stop in cut(text, 1, border) for i in encode(text[start:stop])] == ids
            for text, ids in whole.items()
        )

    proven = "|".join(one for one in CANDIDATES if holds(one))
    return re.compile(proven) if proven and holds(proven) else None


def cut(
    text: str, size: int, border: "re.Pattern[str]", start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Blocks [a, b) of text[start:stop] of about `size` characters whose tokens, one block after
    the other, are the text's. `start` and `stop` must be borders or ends themselves."""
    end = len(text) if stop is None else stop
    while end - start > size:
        at = first_border(text, start + size, end, border)
        if at is None:
            break
        yield start, at
        start = at
    if start < end:
        yield start, end


def first_border(text: str, start: int, stop: int, border: "re.Pattern[str]") -> int | None:
    """The first border in [start, stop)."""
    for at in range(start, stop, WINDOW_CHARS):
        # A border looks two characters ahead.
        found = border.search(text, at, min(at + WINDOW_CHARS, stop) + 2)
        if found is not None and found.start() < stop:
            return found.start()
    return None


def last_border(text: str, start: int, border: "re.Pattern[str]") -> int | None:
    """The last border in text[start:]; keep that short."""
    at = len(text)
    while at > start:
        at = max(start, at - 128)
        found = [match.start() for match in border.finditer(text, at)]
        found = [one for one in found if one < len(text)]
        if found:
            return found[-1]
    return None
