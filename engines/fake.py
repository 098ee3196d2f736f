"""An engine without a model, for tests of whatever stands before one; knows no text but its own.

Its tokenizer has one token per byte, so a script can be written as text.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from random import Random

from engines.api import (
    AnswerEndEvent,
    AttendedEvent,
    AttendedSpan,
    Attention,
    EngineBusy,
    EngineError,
    EngineInfo,
    EngineLoad,
    EngineRefused,
    EngineStatus,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    ProgressEvent,
    PromptTooLong,
    ReadTimes,
    RequestExpired,
    TokenEvent,
    TokenizerFiles,
    TokenLogprob,
)
from engines.grammar import Grammars

START_ID, END_ID = 256, 257
MAX_ANSWERS = 8

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CLOSING = b'"]},'

Script = Callable[[GenerateRequest], Sequence[int]]


def byte_ids(text: str) -> list[int]:
    """The fake tokenizer's ids of a text without special tokens."""
    return list(text.encode())


def obey(seed: int) -> Script:
    """Answer with random tokens that the request's grammar allows, until it is complete: others
    for every seed of the request too.

    Where an answer may end it does; of the rest, a character that ends something goes first half
    of the time, or random texts would hardly ever end.
    """

    def script(request: GenerateRequest) -> Sequence[int]:
        assert request.grammar is not None, "a grammar to obey"
        rng = Random(f"{seed}/{request.sampling.seed}")
        follower = Grammars(byte_tokenizer(), END_ID + 1).follower(request.grammar)
        answer: list[int] = []
        while END_ID not in answer and len(answer) < request.max_new_tokens:
            mask = follower.allowed(answer)
            assert mask is not None, "the grammar goes on"
            allowed = [i for i in range(END_ID + 1) if mask[i // 8] >> i % 8 & 1]
            ends = [i for i in allowed if i == END_ID or i in CLOSING]
            answer.append(rng.choice(ends if ends and rng.random() < 0.5 else allowed))
        return answer

    return script


def say(text: str) -> Script:
    """Answer every request with this text and then stop."""
    return lambda _: [*byte_ids(text), END_ID]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSettings:
    """What the fake claims and how slow it is. `fails_after` tokens it raises `failure`."""

    context_tokens: Mapping[Attention, int] = field(
        default_factory=lambda: {Attention.FULL: 8192, Attention.HIERARCHICAL: 1_000_000}
    )
    window_tokens: int = 8192
    prefill_chunk_tokens: int = 512
    prefill_delay_s: float = 0.0
    token_delay_s: float = 0.0
    max_running: int = 1_000
    failure: EngineError | None = None
    fails_after: int = 0
    status: EngineStatus = EngineStatus.READY


class FakeEngine:
    """Follows its script and keeps book: `requests` in order of arrival, and the ids of those that
    were `finished`, `failed` or `aborted`."""

    def __init__(self, script: Script | None = None, settings: FakeSettings | None = None) -> None:
        self._script = script or say("Hello from the fake engine.")
        self._settings = settings or FakeSettings()
        self._tokenizer = byte_tokenizer()
        self._grammars = Grammars(self._tokenizer, END_ID + 1)
        self._running = 0
        self.requests: list[GenerateRequest] = []
        self.finished: list[str] = []
        self.failed: list[str] = []
        self.aborted: list[str] = []

    async def info(self) -> EngineInfo:
        settings = self._settings
        return EngineInfo(
            model="fake",
            status=settings.status,
            ranks=1,
            epoch=1,
            dtype="float32",
            window_tokens=settings.window_tokens,
            context_tokens=settings.context_tokens,
            kv_bytes_per_token=1,
            kv_budget_tokens=max(settings.context_tokens.values()),
            tokenizer_digest=self._tokenizer.digest,
            load=EngineLoad(running=self._running),
        )

    async def tokenizer(self) -> TokenizerFiles:
        return self._tokenizer

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        self._check(request)
        if request.grammar is not None:
            self._grammars.check(request.grammar)
        self.requests.append(request)
        self._running += 1
        book = self.aborted
        try:
            async with aclosing(self._answer(request)) as events:
                async for event in events:
                    if isinstance(event, FinishEvent):
                        book = self.finished
                    yield event
        except EngineError:
            book = self.failed
            raise
        finally:
            self._running -= 1
            book.append(request.request_id)

    def _check(self, request: GenerateRequest) -> None:
        if not request.prompt_ids:
            raise EngineRefused("the prompt has no tokens")
        if not 1 <= request.n <= MAX_ANSWERS:
            raise EngineRefused(f"n must be from 1 to {MAX_ANSWERS}, not {request.n}")
        needed = len(request.prompt_ids) + request.max_new_tokens
        limit = self._settings.context_tokens[request.attention]
        if needed > limit:
            raise PromptTooLong(num_tokens=needed, limit=limit, attention=request.attention)
        if self._running >= self._settings.max_running:
            raise EngineBusy(queued=self._running, retry_after_s=1.0)

    async def _answer(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        started_s = time.monotonic()
        num_prompt = len(request.prompt_ids)
        chunk = self._settings.prefill_chunk_tokens
        for start in range(0, num_prompt, chunk):
            await self._work(request, self._settings.prefill_delay_s)
            times = ReadTimes(self._settings.prefill_delay_s) if request.is_sampled else None
            yield ProgressEvent(min(start + chunk, num_prompt), num_prompt, times)
        if request.attention is Attention.HIERARCHICAL:
            yield AttendedEvent((AttendedSpan(0, max(1, request.question_start), 1.0),), 1.0)
        first_s = time.monotonic()
        num_sent = 0
        async for event in _in_turn([self._tokens(request, i) for i in range(request.n)]):
            if isinstance(event, AnswerEndEvent):
                end = event
                num_sent += end.completion_tokens
            if request.n > 1 or not isinstance(event, AnswerEndEvent):
                yield event
        yield FinishEvent(
            reason=end.reason,
            prompt_tokens=num_prompt,
            cached_tokens=0,
            completion_tokens=num_sent,
            queue_s=0.0,
            prefill_s=first_s - started_s,
            decode_s=time.monotonic() - first_s,
        )

    async def _tokens(self, request: GenerateRequest, index: int) -> AsyncGenerator[Event, None]:
        num_sent, reason = 0, FinishReason.STOP
        sampling = replace(request.sampling, seed=request.sampling.seed + index)
        for token in self._script(replace(request, sampling=sampling)):
            await self._work(request, self._settings.token_delay_s)
            if self._settings.failure and num_sent >= self._settings.fails_after:
                raise self._settings.failure
            if token == END_ID or token in request.stop_ids:
                break
            yield replace(_token(token, request), index=index)
            num_sent += 1
            if num_sent == request.max_new_tokens:
                reason = FinishReason.LENGTH
                break
        yield AnswerEndEvent(index=index, reason=reason, completion_tokens=num_sent)

    async def _work(self, request: GenerateRequest, delay_s: float) -> None:
        left_s = request.deadline_s - time.monotonic()
        await asyncio.sleep(max(0.0, min(delay_s, left_s)))
        if left_s <= delay_s:
            raise RequestExpired("the deadline passed before the answer was finished")


async def _in_turn(answers: list[AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
    """One event of each answer after the other, as a gang that decodes them together."""
    while answers:
        for answer in list(answers):
            event = await anext(answer, None)
            if event is None:
                answers.remove(answer)
            else:
                yield event


def _token(token: int, request: GenerateRequest) -> TokenEvent:
    """Certain of every token: logprob 0, and the alternatives at -10."""
    wanted = request.sampling.top_logprobs
    if wanted is None:
        return TokenEvent(token)
    others = [TokenLogprob((token + i) % END_ID, -10.0) for i in range(1, wanted)]
    top = (TokenLogprob(token, 0.0), *others) if wanted else ()
    return TokenEvent(token, 0.0, top)


def byte_tokenizer() -> TokenizerFiles:
    """Id b is byte b; 256 and 257 open and close a ChatML turn."""
    letters = _byte_letters()
    vocab = {letter: byte for byte, letter in enumerate(letters)}
    specials = {"<|im_start|>": START_ID, "<|im_end|>": END_ID}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    tokenizer: dict[str, object] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id_,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for text, id_ in specials.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": None,
        "decoder": {**level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {**vocab, **specials},
            "merges": [],
        },
    }
    body = json.dumps(tokenizer).encode()
    return TokenizerFiles(
        tokenizer_json=body,
        chat_template=CHATML,
        special_tokens={"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"},
        stop_ids=(END_ID,),
        digest=hashlib.sha256(body + CHATML.encode()).hexdigest(),
    )


def _byte_letters() -> list[str]:
    """The printable letter that byte-level tokenizers write for each byte."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]
