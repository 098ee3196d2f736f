"""An answer's text to the tool calls in it, as it comes; knows one syntax, no engine and no wire.

What looks like a call and is none (broken JSON, a function that was not offered) is text again,
to the last character. Blanks between calls and text belong to neither.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from gateway.tools.objects import ObjectEnd
from gateway.tools.syntax import CallSyntax


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """A part of call number `call`; the first has the name, `arguments` are to be joined."""

    call: int
    arguments: str
    name: str | None = None


class _State(Enum):
    START = auto()
    """Nothing but blanks so far: a bare call may begin."""
    TEXT = auto()
    GROUP = auto()
    """Inside a group, between calls."""
    OBJECT = auto()


class CallParser:
    """`live`: a grammar vouches for the calls, so their arguments are passed on as they come."""

    def __init__(self, syntax: CallSyntax, names: Collection[str], *, live: bool = False) -> None:
        self._syntax = syntax
        self._names = names
        self._live = live
        self._head = re.compile(
            r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
        )
        self._state = _State.START
        self._buffer = ""
        self._raw = ""
        self._end = ObjectEnd()
        self._num_fed = 0
        self._sent = -1
        self.num_calls = 0

    def push(self, text: str) -> list[str | CallPiece]:
        self._buffer += text
        return _joined(self._drain(final=False))

    def close(self) -> list[str | CallPiece]:
        """What an answer leaves that ends here."""
        return _joined(self._drain(final=True))

    def _drain(self, *, final: bool) -> Iterator[str | CallPiece]:
        before: tuple[_State, str] | None = None
        while before != (self._state, self._buffer):
            before = (self._state, self._buffer)
            match self._state:
                case _State.START:
                    self._start(final)
                case _State.TEXT:
                    yield from self._text(final)
                case _State.GROUP:
                    yield from self._group(final)
                case _State.OBJECT:
                    yield from self._object()
        if final:
            yield from self._left_over()

    def _start(self, final: bool) -> None:
        said = self._buffer.lstrip()
        if self._syntax.bare and said.startswith("{"):
            self._raw = self._buffer[: len(self._buffer) - len(said)]
            self._begin_object(said)
        elif said or final:
            self._state = _State.TEXT

    def _text(self, final: bool) -> Iterator[str]:
        before, opener, after = self._buffer.partition(self._syntax.opener)
        if opener:
            said = before.rstrip()
            yield said
            self._raw = before[len(said) :] + opener
            self._buffer = after
            self._state = _State.GROUP
        elif not final:
            said = before[: len(before) - _overlap(before, opener=self._syntax.opener)].rstrip()
            yield said
            self._buffer = before[len(said) :]

    def _group(self, final: bool) -> Iterator[str]:
        said = self._buffer.lstrip()
        self._raw += self._buffer[: len(self._buffer) - len(said)]
        self._buffer = said
        syntax = self._syntax
        if said.startswith("{"):
            self._begin_object(said)
        elif syntax.closer and said.startswith(syntax.closer):
            self._buffer = said[len(syntax.closer) :]
            yield from self._no_call(syntax.closer)
        elif said and said[0] in syntax.between:
            self._raw += said[0]
            self._buffer = said[1:]
        elif said and (final or not syntax.closer.startswith(said)):
            yield from self._no_call("")

    def _begin_object(self, said: str) -> None:
        self._buffer = said
        self._end = ObjectEnd()
        self._num_fed = 0
        self._sent = -1
        self._state = _State.OBJECT

    def _object(self) -> Iterator[str | CallPiece]:
        stop = self._end.feed(self._buffer[self._num_fed :])
        self._num_fed = len(self._buffer)
        if self._live:
            yield from self._say_live()
        if stop is None:
            return
        whole, self._buffer = self._buffer[:stop], self._buffer[stop:]
        if self._sent < 0:
            call = self._call(whole)
            if call is None:
                yield from self._no_call(whole)
                return
            name, arguments = call
            yield CallPiece(call=self.num_calls, name=name, arguments="")
            yield CallPiece(call=self.num_calls, arguments=arguments)
        self.num_calls += 1
        self._raw = ""
        self._state = _State.GROUP

    def _say_live(self) -> Iterator[CallPiece]:
        if self._sent < 0:
            head = self._head.match(self._buffer)
            name = json.loads(head[1]) if head else None
            if head is None or name not in self._names:
                return
            self._sent = head.end()
            yield CallPiece(call=self.num_calls, name=name, arguments="")
        stop = self._end.value_stop if self._end.value_stop >= self._sent else len(self._buffer)
        said = self._buffer[self._sent : stop]
        if said:
            self._sent = stop
            yield CallPiece(call=self.num_calls, arguments=said)

    def _call(self, whole: str) -> tuple[str, str] | None:
        """Name and arguments; None for what is no call of an offered function."""
        try:
            body = json.loads(whole)
        except (ValueError, RecursionError):
            return None
        name = body.get("name")
        arguments = body.get("arguments", body.get("parameters", {}))
        if not isinstance(name, str) or name not in self._names:
            return None
        if isinstance(arguments, str) and _is_object(arguments):
            return name, arguments
        if not isinstance(arguments, dict):
            return None
        head = self._head.match(whole)
        if head is None or len(body) > 2:
            return name, json.dumps(arguments, ensure_ascii=False)
        return name, whole[head.end() :].rstrip().removesuffix("}").rstrip()

    def _no_call(self, more: str) -> Iterator[str]:
        """Back to text, and to text goes what no call has used up: all but a closer after one."""
        unused = self._raw + more
        if unused.strip() not in ("", self._syntax.closer):
            yield unused
        self._raw = ""
        self._state = _State.TEXT

    def _left_over(self) -> Iterator[str]:
        """Blanks at the end of a text are part of it, unless calls came before."""
        is_call = self._state is _State.OBJECT and self._sent >= 0
        held = "" if is_call else self._raw + self._buffer
        if not self.num_calls or not self._syntax.closer.startswith(held.strip()):
            yield held
        self._raw = self._buffer = ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _joined(parts: Iterator[str | CallPiece]) -> list[str | CallPiece]:
    """Neighbouring texts as one; no empty ones."""
    joined: list[str | CallPiece] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part:
            joined.append(part)
    return joined


def _overlap(text: str, *, opener: str) -> int:
    """Length of the longest end of `text` that may begin the opener."""
    longest = min(len(text), len(opener) - 1)
    return next((n for n in range(longest, 0, -1) if opener.startswith(text[-n:])), 0)
