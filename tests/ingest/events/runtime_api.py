"""A small Lambda Runtime API on loopback: hands events to one runtime and keeps its answers."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PREFIX = "/2018-06-01/runtime/"
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Invocation:
    id: str
    event: Json
    remaining_s: float


@dataclass(slots=True)
class RuntimeApi:
    waiting: deque[Invocation] = field(default_factory=deque)
    answers: dict[str, Json] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    address: str = ""
    is_closed: bool = False

    def invoke(self, event: Json, *, remaining_s: float = 60.0, timeout_s: float = 30.0) -> Json:
        """The function's answer; fails when the runtime reports an error or stays silent."""
        with self.changed:
            invocation = Invocation(f"call-{len(self.answers)}", event, remaining_s)
            self.waiting.append(invocation)
            self.changed.notify_all()
            done = self.changed.wait_for(
                lambda: invocation.id in self.answers or self.errors, timeout_s
            )
            assert not self.errors, self.errors
            assert done, "the function did not answer"
            return self.answers[invocation.id]

    def next(self) -> Invocation | None:
        """None when the test is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.is_closed)
            return None if self.is_closed else self.waiting.popleft()

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


@contextmanager
def open_runtime_api() -> Iterator[RuntimeApi]:
    api = RuntimeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            invocation = api.next()
            if invocation is None:
                self.close_connection = True
                return
            body = json.dumps(invocation.event).encode()
            self.send_response(200)
            deadline_ms = int((time.time() + invocation.remaining_s) * 1000)
            for name, value in {
                "Lambda-Runtime-Aws-Request-Id": invocation.id,
                "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:x:1:function:intake",
                "Lambda-Runtime-Trace-Id": "Root=1-0-0",
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            kind = self.path.removeprefix(PREFIX).split("/")
            with api.changed:
                if kind[-1] == "response":
                    api.answers[kind[1]] = json.loads(raw)
                else:
                    api.errors.append(raw.decode())
                api.changed.notify_all()
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    api.address = f"127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        api.close()
        server.shutdown()
        server.server_close()
        thread.join(5)
