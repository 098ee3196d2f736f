"""Grammars over one model's tokens: compiled once, followed by every answer that must obey one.

Knows llguidance and the tokenizer's files; no model, no tensors, no requests. llguidance is
imported when the first grammar comes.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from time import thread_time
from typing import TYPE_CHECKING, Final

from engines.api import Grammar, GrammarKind, GrammarRefused, TokenizerFiles

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

MAX_SOURCE_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 96
"""Brackets in brackets; the compiler recurses, and a stack that overflows ends its process."""

MAX_COMPILE_S: Final = 2.0
"""Of processor time. A rank compiles too, and everybody's decoding waits for it."""

UNSATISFIABLE: Final = "no text satisfies it"

CACHED: Final = 64

BLANKS: Final = r"[ \n\t]{0,16}"
"""Blanks between the parts of JSON, but never so many that a model can hide in them for ever."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{(]|[\]})]')


class Grammars:
    """Blocking, and safe to use from threads. `num_ids` is the width of the model's logits."""

    def __init__(self, tokenizer: TokenizerFiles, num_ids: int) -> None:
        self._files = tokenizer
        self._num_ids = num_ids
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, LLMatcher] = OrderedDict()
        self._lock = Lock()

    def check(self, grammar: Grammar) -> None:
        """Raises GrammarRefused with the reason for one that cannot be compiled."""
        self._matcher(grammar)

    def follower(self, grammar: Grammar) -> "Follower":
        """Raises GrammarRefused."""
        return Follower(self._matcher(grammar))

    def _matcher(self, grammar: Grammar) -> "LLMatcher":
        found = self._recall(grammar)
        if found is None:
            # Not under the lock: one that takes seconds must not hold up the others.
            found = self._compile(grammar)
            with self._lock:
                self._compiled[grammar] = found
                if len(self._compiled) > CACHED:
                    self._compiled.popitem(last=False)
        with self._lock:
            return found.deep_copy()

    def _recall(self, grammar: Grammar) -> "LLMatcher | None":
        with self._lock:
            found = self._compiled.get(grammar)
            if found is not None:
                self._compiled.move_to_end(grammar)
            return found

    def _compile(self, grammar: Grammar) -> "LLMatcher":
        from llguidance import LLMatcher

        _refuse_excess(grammar.source)
        started_s = thread_time()
        matcher = LLMatcher(self._known_tokens(), _source(grammar), log_level=0, limits=_limits())
        if matcher.is_error():
            raise GrammarRefused(_first_line(matcher.get_error()))
        # That no text satisfies a grammar, or that it is too costly, its first mask tells.
        started = matcher.deep_copy()
        if Follower(started).allowed(()) is None:
            raise GrammarRefused(_first_line(started.get_error()) or UNSATISFIABLE)
        if (spent_s := thread_time() - started_s) > MAX_COMPILE_S:
            raise GrammarRefused(
                f"it takes {spent_s:.1f} s to compile; at most {MAX_COMPILE_S:.0f} s are spent"
            )
        return matcher

    def _known_tokens(self) -> "LLTokenizer":
        if self._tokenizer is None:
            self._tokenizer = _tokenizer(self._files, self._num_ids)
        return self._tokenizer


class Follower:
    """The place of one answer in its grammar."""

    def __init__(self, matcher: "LLMatcher") -> None:
        self._matcher = matcher
        self._num_taken = 0

    def allowed(self, answer: Sequence[int]) -> bytes | None:
        """Which ids may follow `answer`, one bit each, lowest bit first; None when none may.

        Stop ids are among them only when the answer is complete. `answer` grows between calls by
        tokens that were allowed, or is cut back.
        """
        if self._num_taken > len(answer):
            self._matcher.rollback(self._num_taken - len(answer))
            self._num_taken = len(answer)
        for token in answer[self._num_taken :]:
            if not self._matcher.consume_token(token):
                return None
            self._num_taken += 1
        mask = self._matcher.compute_bitmask()
        return None if self._is_stuck() else mask

    def _is_stuck(self) -> bool:
        """A limit of the parser was met, or nothing can follow and the answer is not complete."""
        matcher = self._matcher
        return matcher.is_error() or (matcher.is_stopped() and not matcher.is_accepting())


def _limits() -> "LLParserLimits":
    """Below llguidance's own: what costs a second to begin would stop everybody's decoding."""
    from llguidance import LLParserLimits

    return LLParserLimits(initial_lexer_fuel=400_000, max_lexer_states=50_000, verbose_errors=False)


def _refuse_excess(source: str) -> None:
    num_bytes = len(source.encode())
    if num_bytes > MAX_SOURCE_BYTES:
        raise GrammarRefused(f"it has {num_bytes} bytes; at most {MAX_SOURCE_BYTES} are compiled")
    depth = 0
    for match in _BRACKETS.finditer(source):
        if match.group()[0] == '"':
            continue
        depth += 1 if match.group() in "[{(" else -1
        if depth > MAX_DEPTH:
            raise GrammarRefused(f"it is nested more than {MAX_DEPTH} levels deep")


def _source(grammar: Grammar) -> str:
    from llguidance import LLMatcher

    match grammar.kind:
        case GrammarKind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.source)
        case GrammarKind.LARK:
            return LLMatcher.grammar_from_lark(grammar.source)
    schema = grammar.source if grammar.kind is GrammarKind.JSON_SCHEMA else '{"type":"object"}'
    try:
        return LLMatcher.grammar_from_json_schema(
            _object(schema), overrides={"whitespace_flexible": True, "whitespace_pattern": BLANKS}
        )
    except ValueError as error:
        raise GrammarRefused(f"it is no JSON schema: {error}") from error


def _object(schema: str) -> str:
    """Raises ValueError unless it is JSON of an object."""
    if not isinstance(json.loads(schema), dict):
        raise ValueError("a schema is a JSON object")
    return schema


def _tokenizer(files: TokenizerFiles, num_ids: int) -> "LLTokenizer":
    from llguidance import LLTokenizer
    from tokenizers import Tokenizer

    text = files.tokenizer_json.decode()
    known: int = Tokenizer.from_str(text).get_vocab_size(with_added_tokens=True)
    stops = list(files.stop_ids)
    return LLTokenizer(text, n_vocab=max(num_ids, known), eos_token=stops or None)


def _first_line(error: str) -> str:
    """llguidance appends the parser's state to some of its errors."""
    line = re.split(r"\n<(?:state|non-verbose)", error)[0].strip()[:400]
    return UNSATISFIABLE if line.startswith("NoExtension") else line
