"""The one analyzer: turns text into index terms; knows words and stems, nothing of indexes.

Every store receives these terms ready made, so that all of them find the same things.
Latin words are lower-cased, stripped of accents, stemmed as English and freed of stop words;
identifiers stay whole and are also split (`parseHTTPRequest2`, `max_num_seqs`); scripts written
without spaces become bigrams. Other scripts are kept as lower-cased words.
"""

import re
import sys
import threading
import unicodedata
from itertools import pairwise

from Stemmer import Stemmer

ANALYZER_VERSION = "1"
"""Changes whenever the same text gives other terms; an index remembers it."""

MAX_TERM_CHARS = 64
"""Longer runs (base64, minified code) are cut: nobody asks for them whole."""

_MEMO_LIMIT = 400_000
"""Distinct words remembered before the memo starts again: about 60 MB."""

_STOP_TEXT = """
a about above after again against all also am an and any are as at be because been before
being below between both but by can could did do does doing down during each few for from
further had has have having he her here hers herself him himself his how i if in into is it
its itself just me more most my myself no nor not now of off on once only or other our ours
ourselves out over own s same she should so some such t than that the their theirs them
themselves then there these they this those through to too under until up very was we were
what when where which while who whom why will with would you your yours yourself yourselves
d ll m re ve don
"""
STOP_WORDS = frozenset(_STOP_TEXT.split())

_MARKS = "".join(
    chr(point) for point in range(0x300, 0x10000) if unicodedata.category(chr(point))[0] == "M"
)
_NUMBER = r"\d+(?:[.,]\d+)+(?!\w)"
_ASCII_WORD = re.compile(rf"{_NUMBER}|\w+", re.ASCII)
_WORD = re.compile(rf"{_NUMBER}|[\w{re.escape(_MARKS)}]+")
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_RUN = re.compile(f"([{_UNSPACED}]+)")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LATIN = re.compile(r"[a-z]+")


def analyze(text: str) -> list[str]:
    """The terms of `text`, in order, repeats kept. Empty text gives no terms."""
    if text.isascii():
        words = _ASCII_WORD.findall(text)
    else:
        words = _WORD.findall(unicodedata.normalize("NFKC", text))
    memo = _memo
    return [term for word in words for term in memo[word]]


def analyze_joined(text: str) -> str:
    """The same terms parted by single spaces, for stores that take only text."""
    return " ".join(analyze(text))


class _Memo(dict[str, tuple[str, ...]]):
    """Terms by word, computed on first sight; one lock, because the stemmer keeps state."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._stemmer = Stemmer("english", 0)

    def __missing__(self, word: str) -> tuple[str, ...]:
        with self._lock:
            if len(self) >= _MEMO_LIMIT:
                self.clear()
            terms = tuple(sys.intern(term[:MAX_TERM_CHARS]) for term in self._terms(word))
            self[word] = terms
            return terms

    def _terms(self, word: str) -> list[str]:
        if _LATIN.fullmatch(word):
            return self._plain(word)
        if word[0].isdigit() and not word.isalnum() and "_" not in word:
            return [word.replace(",", "")]
        pieces = [piece for piece in _UNSPACED_RUN.split(word) if piece]
        terms: list[str] = []
        for piece in pieces:
            if _UNSPACED_RUN.fullmatch(piece):
                terms += _bigrams(piece)
            else:
                terms += self._word_terms(_without_accents(piece))
        return terms

    def _word_terms(self, word: str) -> list[str]:
        whole = word.strip("_").casefold()
        parts = _PART.findall(word) if word.isascii() else []
        if len(parts) < 2:
            return self._plain(whole)
        return [whole, *(term for part in parts for term in self._plain(part.lower()))]

    def _plain(self, word: str) -> list[str]:
        if not word or word in STOP_WORDS:
            return []
        if _LATIN.fullmatch(word):
            return [str(self._stemmer.stemWord(word))]
        return [word]


def _bigrams(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [first + second for first, second in pairwise(run)]


def _without_accents(word: str) -> str:
    """Latin, Greek and Cyrillic lose their accents; in other scripts marks are part of the word."""
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word)
    bare = "".join(char for char in decomposed if not 0x300 <= ord(char) < 0x370)
    return unicodedata.normalize("NFC", bare)


_memo = _Memo()
