"""What gateway tests share: a small real tokenizer, engines that speak it, a server on a socket."""

import asyncio
import hashlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache

import uvicorn
from openai import OpenAI
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engines.api import EngineInfo, Event, GenerateRequest, TokenizerFiles
from engines.fake import CHATML, FakeEngine, FakeSettings, Script
from gateway.app import create_app
from gateway.cli.hosting import Server
from gateway.parts import Parts
from gateway.policy import Policy
from gateway.prompt.model_text import ModelText
from ingest.fake import FakeLibrary

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
CORPUS = (
    "the quick brown fox jumps over the lazy dog, and the warehouse lease ends in March.",
    "Who signed the agreement? The witness said that they've seen it; it isn't here.",
    "Käse, naïve, 東京都 and 👩‍👧 are words too.\n\nDocument 1: a.txt\n",
    "system user assistant You are a helpful assistant. Answer the question from the sources.",
)


@cache
def trained() -> Tokenizer:
    """A byte-level BPE of 600 entries, trained in milliseconds."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


@cache
def tokenizer_files(chat_template: str = CHATML) -> TokenizerFiles:
    body = trained().to_str().encode()
    return TokenizerFiles(
        tokenizer_json=body,
        chat_template=chat_template,
        special_tokens={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
        stop_ids=(id_of("<|im_end|>"),),
        digest=hashlib.sha256(body + chat_template.encode()).hexdigest(),
    )


def id_of(token: str) -> int:
    found: int | None = trained().token_to_id(token)
    assert found is not None, token
    return found


@cache
def model_text() -> ModelText:
    return ModelText.build(tokenizer_files())


def ids_of(text: str) -> list[int]:
    ids: list[int] = trained().encode(text, add_special_tokens=False).ids
    return ids


def bpe_say(text: str) -> Script:
    return lambda _: [*ids_of(text), *tokenizer_files().stop_ids]


class BpeEngine(FakeEngine):
    """The fake engine with the trained tokenizer."""

    def __init__(self, script: Script | None = None, settings: FakeSettings | None = None) -> None:
        super().__init__(script or bpe_say("Hello there."), settings)

    async def info(self) -> EngineInfo:
        return replace(await super().info(), tokenizer_digest=tokenizer_files().digest)

    async def tokenizer(self) -> TokenizerFiles:
        return tokenizer_files()


class FailingEngine(BpeEngine):
    """Raises before the first event."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self._error = failure

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        raise self._error
        yield  # pragma: no cover


@dataclass(frozen=True, slots=True)
class Running:
    url: str
    port: int
    parts: Parts
    clients: list[OpenAI] = field(default_factory=list)

    def client(self, **options: object) -> OpenAI:
        """Closed with the gateway."""
        client = OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0)
        self.clients.append(client)
        return client


@contextmanager
def running(parts: Parts) -> Iterator[Running]:
    """A real uvicorn on a real socket, in a thread with its own event loop."""
    # asyncio turns Nagle's delay of 40 ms off only where the protocol is named.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    server = Server(
        uvicorn.Config(
            create_app(parts),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=_serve, args=(server, sock, parts), daemon=True)
    thread.start()
    port = sock.getsockname()[1]
    gateway = Running(f"http://127.0.0.1:{port}", port, parts)
    try:
        yield gateway
    finally:
        for client in gateway.clients:
            client.close()
        server.should_exit = True
        thread.join(10)
        sock.close()
        assert not thread.is_alive()


def _serve(server: Server, sock: socket.socket, parts: Parts) -> None:
    async def serve() -> None:
        await server.serve(sockets=[sock])
        # On the loop that its connections belong to; later nobody could close them.
        await parts.accounts.aclose()

    asyncio.run(serve())


def make_parts(
    engine: FakeEngine | None = None,
    policy: Policy | None = None,
    library: FakeLibrary | None = None,
    **others: object,
) -> Parts:
    parts = Parts(
        engine=engine or BpeEngine(), policy=policy or Policy(), library=library or FakeLibrary()
    )
    return replace(parts, **others)  # type: ignore[arg-type]


Start = Callable[..., Running]


def paragraphs(facts: Sequence[str], num_fillers: int) -> str:
    """A text with a filler paragraph before, between and after the facts."""
    filler = [f"Filler number {i} tells of the lazy dog and the fox." for i in range(num_fillers)]
    per_fact = num_fillers // (len(facts) + 1)
    parts: list[str] = []
    for i, fact in enumerate(facts):
        parts += [*filler[i * per_fact : (i + 1) * per_fact], fact]
    parts += filler[len(facts) * per_fact :]
    return "\n\n".join(parts)
