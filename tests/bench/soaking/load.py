"""A mixed load: what users of a gateway ask, in shares, some of them leaving half-way.

Every request carries an id of its own and is in the ledger with how it ended.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.bench.soaking.ledger import Ledger, Record
from tests.bench.soaking.wire import Leave, Reply, Sent, exchange

CHAT, IDS = "soak-chat", "soak-ids"
LEAVABLE = ("/v1/chat", "/v1/completions", "/v1/responses", "/v1/embeddings", "/v1/files")
EMBEDDER = "all-MiniLM-L6-v2"
POLL_S = 0.5
ENDED_WITHIN_S = 240.0
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks it up.",
        "parameters": {"type": "object", "properties": {"q": {"type": "integer"}}},
    },
}


@dataclass(frozen=True, slots=True)
class Key:
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """`wide` is never refused; `tight` soon is; `long` may have few long prompts at a time."""

    wide: Key
    tight: Key
    long: Key

    @property
    def all(self) -> tuple[Key, ...]:
        return self.wide, self.tight, self.long


@dataclass(slots=True)
class Texts:
    """`long` is a prompt's document of about 98,000 tokens; `new()` one that nobody ever sent."""

    short: Sequence[str]
    long: str
    num_new: int = 0

    def new(self) -> str:
        """The long document with a number in every part of it."""
        self.num_new += 1
        return self.long.replace("\n\n", f"\n\nEntry {self.num_new}: ")


@dataclass(slots=True)
class Client:
    """Asks on behalf of keys. `disconnects` in [0, 1] is the share that leaves."""

    port: int
    rng: Random
    ledger: Ledger
    texts: Texts
    disconnects: float
    num_asked: int = 0

    async def ask(
        self,
        kind: str,
        key: Key,
        method: str,
        path: str,
        body: object = None,
        *,
        stays: bool = False,
    ) -> Reply | None:
        """None when the client left."""
        raw, content_type = _encoded(body)
        headers = {"authorization": f"Bearer {key.text}", "content-type": content_type}
        self.num_asked += 1
        request_id = f"soak-{self.num_asked}"
        may_leave = not stays and method == "POST" and path.startswith(LEAVABLE)
        leave = None
        if may_leave and self.rng.random() < self.disconnects:
            leave = self.rng.choice(list(Leave))
        record = self.ledger.open(Record(request_id, kind, path, key.id, leave))
        sent = Sent(method, path, {**headers, "x-request-id": request_id}, raw)
        reply = await exchange(self.port, sent, leave, self.rng)
        record.close(reply)
        return reply

    async def found(
        self, kind: str, key: Key, method: str, path: str, body: object = None
    ) -> Mapping[str, object]:
        """The answer's body; empty when there was none to use."""
        reply = await self.ask(kind, key, method, path, body)
        if reply is None or reply.status != 200:
            return {}
        told: Mapping[str, object] = json.loads(reply.body)
        return told

    def chat(self, text: str, **fields: object) -> dict[str, object]:
        return {
            "model": self.rng.choice((CHAT, IDS)),
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self.rng.randint(4, 20),
            "stream_options": {"include_usage": True} if fields.get("stream") else None,
            **fields,
        }


Scenario = Callable[[Client, Keys], Awaitable[object]]


async def short_chat(client: Client, keys: Keys) -> None:
    rng = client.rng
    key = rng.choice(keys.all)
    fields = {"stream": rng.random() < 0.6, "n": rng.choice((1, 1, 1, 2))}
    body = client.chat(rng.choice(client.texts.short), **fields)
    await client.ask("chat", key, "POST", "/v1/chat/completions", body)


async def tool_chat(client: Client, keys: Keys) -> None:
    stream = client.rng.random() < 0.5
    body = client.chat("Look it up.", stream=stream, tools=[TOOL], model=CHAT)
    await client.ask("tools", keys.wide, "POST", "/v1/chat/completions", body)


async def long_chat(client: Client, keys: Keys) -> None:
    """A document that was sent before, with a new question."""
    number = client.rng.randrange(10**6)
    body = client.chat(
        f"{client.texts.long}\n\nWhat does entry {number} say?", stream=client.rng.random() < 0.5
    )
    key = client.rng.choice((keys.wide, keys.long))
    await client.ask("long", key, "POST", "/v1/chat/completions", body)


async def new_long_chat(client: Client, keys: Keys) -> None:
    body = client.chat(f"{client.texts.new()}\n\nWhat does it say?")
    await client.ask("new long", keys.wide, "POST", "/v1/chat/completions", body)


async def completion(client: Client, keys: Keys) -> None:
    rng = client.rng
    prompts = rng.sample(list(client.texts.short), rng.choice((1, 2)))
    body = {"model": IDS, "prompt": prompts, "max_tokens": 8, "stream": rng.random() < 0.5}
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    await client.ask("completion", keys.wide, "POST", "/v1/completions", body)


async def response(client: Client, keys: Keys) -> None:
    """Two turns of a conversation, looked at and deleted."""
    path = "/v1/responses"
    body = {"model": CHAT, "input": client.rng.choice(client.texts.short)}
    first = await client.found("response", keys.wide, "POST", path, body)
    if "id" not in first:
        return
    stream = {"stream": True, "previous_response_id": first["id"]}
    await client.ask("response", keys.wide, "POST", path, {**body, **stream})
    await client.ask("response", keys.wide, "GET", f"{path}/{first['id']}")
    await client.ask("response", keys.wide, "DELETE", f"{path}/{first['id']}")


async def wrong(client: Client, keys: Keys) -> None:
    """What is refused: nothing of it may stay behind."""
    body = client.chat("Hello.")
    bad: Sequence[object] = (
        b'{"model": ',
        {**body, "model": "nobody"},
        {**body, "temperature": 9},
        {**body, "messages": []},
        {**body, "max_tokens": 10**7},
    )
    path = "/v1/chat/completions"
    await client.ask("wrong", keys.wide, "POST", path, client.rng.choice(bad))
    await client.ask("wrong", Key("", "rk-nobody"), "POST", path, body)


async def batch(client: Client, keys: Keys) -> None:
    lines = [
        {
            "custom_id": f"c{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": client.chat(text),
        }
        for i, text in enumerate(client.texts.short[:4])
    ]
    raw = b"\n".join(json.dumps(one).encode() for one in lines)
    file = await _upload(client, keys.wide, "batch", raw)
    if file is None:
        return
    made = {
        "input_file_id": file,
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }
    found = await client.found("batch", keys.wide, "POST", "/v1/batches", made)
    async with asyncio.timeout(ENDED_WITHIN_S):
        while found and found["status"] not in ("completed", "failed", "cancelled"):
            await asyncio.sleep(POLL_S)
            path = f"/v1/batches/{found['id']}"
            found = await client.found("batch", keys.wide, "GET", path)
    for name in ("input_file_id", "output_file_id", "error_file_id"):
        if found.get(name):
            await client.ask("batch", keys.wide, "DELETE", f"/v1/files/{found[name]}")


async def embedding(client: Client, keys: Keys) -> None:
    texts = client.rng.sample(list(client.texts.short), 2)
    body = {"model": EMBEDDER, "input": texts}
    await client.ask("embedding", keys.wide, "POST", "/v1/embeddings", body)


async def search(client: Client, keys: Keys) -> None:
    """A file uploaded, put into a store, searched, asked about, and deleted with its store."""
    key = keys.wide
    text = "\n\n".join(client.rng.sample(list(client.texts.short), 3))
    file = await _upload(client, key, "user_data", text.encode(), name="facts.txt")
    if file is None:
        return
    stores = "/v1/vector_stores"
    store = await client.found("search", key, "POST", stores, {"name": "s", "file_ids": [file]})
    if "id" not in store:
        return
    path = f"{stores}/{store['id']}"
    async with asyncio.timeout(ENDED_WITHIN_S):
        while store.get("status") == "in_progress":
            await asyncio.sleep(POLL_S)
            store = await client.found("search", key, "GET", path)
    await client.ask("search", key, "POST", f"{path}/search", {"query": "When does it end?"})
    tool = {"type": "file_search", "vector_store_ids": [path.rpartition("/")[2]]}
    body = {"model": CHAT, "input": "When does the lease end?", "tools": [tool]}
    await client.ask("file search", key, "POST", "/v1/responses", body)
    await client.ask("search", key, "DELETE", path)
    await client.ask("search", key, "DELETE", f"/v1/files/{file}")


async def _upload(
    client: Client, key: Key, purpose: str, raw: bytes, *, name: str = "in.jsonl"
) -> str | None:
    form = _Form(purpose=purpose, name=name, raw=raw)
    found = await client.found("upload", key, "POST", "/v1/files", form)
    return str(found["id"]) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    purpose: str
    name: str
    raw: bytes

    def encoded(self) -> tuple[bytes, str]:
        mark = "soak-boundary-7f3a"
        head = (
            f'--{mark}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\n{self.purpose}\r\n'
            f'--{mark}\r\ncontent-disposition: form-data; name="file"; filename="{self.name}"\r\n'
            "content-type: application/octet-stream\r\n\r\n"
        )
        tail = f"\r\n--{mark}--\r\n"
        return head.encode() + self.raw + tail.encode(), f"multipart/form-data; boundary={mark}"


def _encoded(body: object) -> tuple[bytes, str]:
    match body:
        case None:
            return b"", "application/json"
        case bytes():
            return body, "application/json"
        case _Form():
            return body.encoded()
        case dict():
            told = {name: value for name, value in body.items() if value is not None}
            return json.dumps(told).encode(), "application/json"
    raise TypeError(type(body))


SHARES: Mapping[Scenario, float] = {
    short_chat: 60,
    tool_chat: 8,
    long_chat: 8,
    new_long_chat: 2,
    completion: 10,
    response: 4,
    wrong: 4,
    batch: 0.5,
}
WORKER_SHARES: Mapping[Scenario, float] = {**SHARES, embedding: 3, search: 0.4}
"""With a worker that embeds and searches."""
