"""Server-sent events as bytes: data frames, comments, the end. Knows nothing of what they say."""

import msgspec

DONE = b"data: [DONE]\n\n"


def data(body: object) -> bytes:
    """One frame; JSON has no raw line breaks, so a single `data:` line holds it."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def named(event: str, body: object) -> bytes:
    """The same under a name, which clients can listen for."""
    return b"event: " + event.encode() + b"\n" + data(body)


def comment(text: str) -> bytes:
    """A line that clients ignore and idle timers see."""
    assert "\n" not in text, "a comment is one line"
    return f": {text}\n\n".encode()
