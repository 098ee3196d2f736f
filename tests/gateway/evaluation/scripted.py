"""A gateway on a real socket that finds facts or not by route and length; knows no model."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TypedDict, cast

TEMPLATE_TOKENS = 11
RETRIEVED_TOKENS = 200


class Asked(TypedDict, total=False):
    model: str
    messages: list[dict[str, str]]
    fidelity: str
    allow_fallback: bool
    max_tokens: int
    stream: bool


@dataclass
class Script:
    """`knows` says for a fidelity, a length and a question whether the answer is right."""

    knows: Callable[[str, int, str], bool] = lambda fidelity, length, question: True
    limits: dict[str, int] = field(default_factory=dict)
    has_tokenize: bool = True
    is_ringway: bool = True
    busy_once: bool = False
    is_dead: bool = False
    """Connections end without an answer."""
    models: tuple[str, ...] = ("tiny",)
    stops_after: int | None = None
    on_stop: Callable[[], None] = lambda: None
    chats: list[Asked] = field(default_factory=list)
    num_counted: int = 0
    lock: Lock = field(default_factory=Lock)

    def die(self) -> None:
        self.is_dead = True


def count(content: str) -> int:
    """One token for every four characters begun, and the template's."""
    return -(-len(content) // 4) + TEMPLATE_TOKENS


def answer_to(content: str) -> str:
    """All that is planted, wanted or not."""
    context, question = content.rsplit("\n\n", 1)
    if (key := re.search(r"the key ([0-9a-f]{10})", question)) is not None:
        return " ".join(re.findall(rf"{key[1]}: (\d+)", context))
    numbers = re.findall(r"(?:is|code|again, is) (\d{6})\.", context)
    return " ".join([*numbers, *re.findall(r"VAR ([A-Z]{5}) =", context)])


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def script(self) -> Script:
        assert isinstance(self.server, ScriptedServer)
        return self.server.script

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        assert self.path == "/v1/models"
        self._json(200, {"data": [{"id": one} for one in self.script.models]})

    def do_POST(self) -> None:
        asked = cast(Asked, json.loads(self.rfile.read(int(self.headers["content-length"]))))
        tokens = count(asked["messages"][0]["content"])
        if self.path == "/v1/tokenize":
            self.script.num_counted += 1
            counted = {"count": tokens} if self.script.has_tokenize else {}
            self._json(200 if self.script.has_tokenize else 404, counted)
        elif not asked.get("stream"):
            self.script.num_counted += 1
            self._json(200, {"choices": [], "usage": {"prompt_tokens": tokens}})
        else:
            self._chat(asked, tokens)

    def _chat(self, asked: Asked, tokens: int) -> None:
        with self.script.lock:
            self.script.chats.append(asked)
            if (
                self.script.stops_after is not None
                and len(self.script.chats) == self.script.stops_after + 1
            ):
                self.script.on_stop()
            is_dead = self.script.is_dead
            is_busy, self.script.busy_once = self.script.busy_once, False
        fidelity = asked.get("fidelity", "plain")
        limit = self.script.limits.get(fidelity)
        if is_dead:
            self.close_connection = True
        elif is_busy:
            self._json(503, {"error": {"message": "busy"}})
        elif limit is not None and tokens > limit:
            error = {"message": "too long", "code": "context_length_exceeded"}
            facts = {"num_tokens": tokens, "limit": limit}
            self._json(400, {"error": error, "ringway": facts})
        else:
            self._send(200, stream_of(self.script, asked, tokens), "text/event-stream")

    def _json(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if status == 503:
            self.send_header("retry-after", "0")
        self.end_headers()
        self.wfile.write(body)


def stream_of(script: Script, asked: Asked, tokens: int) -> bytes:
    content = asked["messages"][0]["content"]
    fidelity = asked.get("fidelity", "plain")
    is_right = script.knows(fidelity, tokens, content.rsplit("\n\n", 1)[1])
    text = answer_to(content) if is_right else "I do not know."
    read = RETRIEVED_TOKENS if fidelity == "retrieval" else tokens
    facts = {
        "route": fidelity,
        "prompt_tokens": tokens,
        "tokens_read": read,
        "evidence": (0.8 if is_right else 0.1) if fidelity == "retrieval" else None,
        "timing_ms": {"prefill": read / 10, "total": read / 5},
    }
    usage = {"prompt_tokens": read, "completion_tokens": len(text.split())}
    chunks: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"index": 0, "delta": {"content": text}}]},
        {"choices": [], "usage": usage},
    ]
    if script.is_ringway:
        chunks[-1]["ringway"] = facts
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([": prefill 50 %\n\n", *frames, "data: [DONE]\n\n"]).encode()


@contextmanager
def serving(script: Script) -> Iterator[str]:
    server = ScriptedServer(script)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
