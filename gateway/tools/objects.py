"""Where a JSON object ends in a text that is still being written; reads characters, no meaning."""

import re

_MARKS = re.compile(r'[{}\[\]"\\]')


class ObjectEnd:
    """Feed it a text that begins with `{`, piece by piece.

    `value_stop` is the end of the last object inside it that has ended; -1 before that.
    """

    def __init__(self) -> None:
        self.value_stop = -1
        self._depth = 0
        self._in_string = False
        self._skip = -1
        self._num_chars = 0

    def feed(self, text: str) -> int | None:
        """The number of characters of the object, over all pieces, once it has ended."""
        for mark in _MARKS.finditer(text):
            at = self._num_chars + mark.start()
            if at == self._skip:
                continue
            if self._take(mark.group(), at) and self._depth == 0:
                return at + 1
        self._num_chars += len(text)
        return None

    def _take(self, mark: str, at: int) -> bool:
        """Whether a bracket closed."""
        if mark == '"':
            self._in_string = not self._in_string
        elif mark == "\\":
            self._skip = at + 1
        elif not self._in_string:
            self._depth += 1 if mark in "{[" else -1
            if mark in "}]":
                if self._depth == 1:
                    self.value_stop = at + 1
                return True
        return False
