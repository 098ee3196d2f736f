"""A gateway that says what a test tells it, over a real socket; knows no model and no search."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypedDict, cast


class ChatRequest(TypedDict):
    fidelity: str
    allow_fallback: bool
    stream: bool
    messages: list[dict[str, list[dict[str, str]]]]


@dataclass
class Script:
    """What the gateway answers, and what it was asked."""

    chat: Mapping[tuple[str, str], bytes]
    """SSE body by (fidelity, question)."""
    refusals: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)
    """Status and body by fidelity."""
    statuses: list[str] = field(default_factory=lambda: ["uploaded", "in_progress", "processed"])
    uploads: list[bytes] = field(default_factory=list)
    asked: list[ChatRequest] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


def handler_for(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/v1/models":
                self._json({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
                return
            status = script.statuses.pop(0) if len(script.statuses) > 1 else script.statuses[0]
            cause = "it is broken" if status == "error" else None
            self._json({"id": "file-1", "status": status, "status_details": cause})

        def do_DELETE(self) -> None:
            script.deleted.append(self.path)
            self._json({"id": "file-1", "deleted": True})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/files":
                script.uploads.append(body)
                self._json({"id": "file-1", "status": "uploaded"})
                return
            asked = cast(ChatRequest, json.loads(body))
            script.asked.append(asked)
            if refusal := script.refusals.get(asked["fidelity"]):
                self._send(*refusal, kind="application/json")
                return
            question = asked["messages"][0]["content"][1]["text"]
            stream = script.chat[asked["fidelity"], question]
            self._send(200, stream, kind="text/event-stream")

        def _json(self, body: object) -> None:
            self._send(200, json.dumps(body).encode(), kind="application/json")

        def _send(self, status: int, body: bytes, *, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """The base address of a server that plays `script`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_for(script))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
