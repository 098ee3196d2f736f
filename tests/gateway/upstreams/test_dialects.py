"""Servers that read token ids: what each is asked, and its own stream as it documents it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from engines.api import (
    EngineLost,
    EngineRefused,
    Event,
    FinishEvent,
    FinishReason,
    Grammar,
    GrammarKind,
    ProgressEvent,
    PromptTooLong,
    Reads,
    Sampling,
    TextEvent,
    TextLogprob,
    TokenEvent,
    TokenLogprob,
)
from tests.gateway.fakes import tokenizer_files
from tests.gateway.upstreams.mock_upstream import MockUpstream, Reply, mock, sse
from tests.gateway.upstreams.serving import engine_over, heard, request

LOGPROBS = Sampling(temperature=0, top_logprobs=2)
STOP = 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_files().tokenizer_json)
    return tmp_path


async def spoken(
    kind: str, folder: Path, chunks: Sequence[object], **changes: object
) -> tuple[list[Event], MockUpstream]:
    reply = Reply(steps=sse(*chunks))
    async with (
        mock(lambda _: reply) as up,
        engine_over(up.url, kind=kind, tokenizer=folder) as engine,
    ):
        assert (await engine.info()).reads is Reads.IDS
        return await heard(engine, request(3, stop_ids=(STOP,), chat=None, **changes)), up


def vllm(ids: list[int], reason: str | None = None, **choice: object) -> dict[str, object]:
    return {
        "choices": [{"index": 0, "text": "?", "token_ids": ids, "finish_reason": reason, **choice}]
    }


USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 2},
    },
}


def ended(event: Event) -> tuple[FinishReason, int, int, int]:
    assert isinstance(event, FinishEvent)
    return event.reason, event.prompt_tokens, event.cached_tokens, event.completion_tokens


async def test_vllm_reads_and_tells_ids(folder: Path) -> None:
    chunks = [vllm([1]), vllm([2, STOP], "stop"), USAGE, b"[DONE]"]
    events, up = await spoken("vllm", folder, chunks)
    assert events[:-1] == [TokenEvent(1), TokenEvent(2)]
    assert ended(events[-1]) == (FinishReason.STOP, 3, 2, 3)
    asked = up.asked[0]
    assert asked.path == "/v1/completions"
    assert (asked.body["prompt"], asked.body["return_token_ids"]) == ([0, 1, 2], True)
    assert asked.body["stop_token_ids"] == [STOP]


async def test_vllm_tells_logprobs_by_ids(folder: Path) -> None:
    told = {
        "tokens": ["token_id:1"],
        "token_logprobs": [-0.5],
        "top_logprobs": [{"token_id:4": -2.0, "token_id:1": -0.5}],
    }
    chunks = [vllm([1], "length", logprobs=told), USAGE, b"[DONE]"]
    events, up = await spoken("vllm", folder, chunks, sampling=LOGPROBS)
    assert events[0] == TokenEvent(1, -0.5, (TokenLogprob(1, -0.5), TokenLogprob(4, -2.0)))
    assert up.asked[0].body["return_tokens_as_token_ids"] is True


async def test_an_older_vllm_tells_text(folder: Path) -> None:
    chunk = {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    events, _ = await spoken("vllm", folder, [chunk, USAGE, b"[DONE]"])
    assert events[0] == TextEvent("Hi")


@pytest.mark.parametrize("whole", [True, False])
async def test_sglang_tells_ids_whole_or_in_pieces(folder: Path, whole: bool) -> None:
    def chunk(num: int, reason: object = None) -> dict[str, object]:
        first = 0 if whole else num - 2
        ids = [10, 11, 12, 13]
        told = [[-0.1 * i, token, None] for i, token in enumerate(ids)]
        meta = {
            "prompt_tokens": 3,
            "cached_tokens": 1,
            "completion_tokens": num,
            "finish_reason": reason,
            "output_token_logprobs": told[first:num],
            "output_top_logprobs": [[one] for one in told[first:num]],
        }
        return {"text": "", "output_ids": ids[first:num], "meta_info": meta}

    chunks = [chunk(2), chunk(4, {"type": "length"}), b"[DONE]"]
    events, up = await spoken("sglang", folder, chunks, sampling=LOGPROBS)
    assert [(e.id, e.logprob) for e in events if isinstance(e, TokenEvent)] == [
        (10, -0.0),
        (11, -0.1),
        (12, -0.2),
        (13, pytest.approx(-0.3)),
    ]
    assert ended(events[-1]) == (FinishReason.LENGTH, 3, 1, 4)
    assert up.asked[0].path == "/generate"
    assert up.asked[0].body["input_ids"] == [0, 1, 2]


async def test_sglang_s_overflow_comes_as_an_error_in_the_stream(folder: Path) -> None:
    message = "The input (9000 tokens) is longer than the model's context length (8192 tokens)."
    with pytest.raises(PromptTooLong):
        await spoken("sglang", folder, [{"error": {"message": message, "code": 400}}])
    abort = {"output_ids": [], "meta_info": {"finish_reason": {"type": "abort", "message": "why"}}}
    with pytest.raises(EngineLost, match="why"):
        await spoken("sglang", folder, [abort])


async def test_llamacpp_tells_progress_and_text(folder: Path) -> None:
    probability = {
        "id": 5,
        "token": "H",
        "bytes": [72],
        "logprob": -0.25,
        "top_logprobs": [{"id": 5, "token": "H", "bytes": [72], "logprob": -0.25}] * 3,
    }
    end = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 1}
    chunks: list[object] = [
        {"content": "", "stop": False, "prompt_progress": {"total": 3, "processed": 2}},
        {"content": "H", "stop": False, "completion_probabilities": [probability]},
        {**end, "tokens_evaluated": 3, "timings": {"cache_n": 1, "prompt_n": 2}},
    ]
    events, up = await spoken("llamacpp", folder, chunks, sampling=LOGPROBS)
    plain = TextLogprob("H", (72,), -0.25)
    assert events[:2] == [
        ProgressEvent(2, 3),
        TextEvent("H", 0, (TextLogprob("H", (72,), -0.25, (plain, plain)),)),
    ]
    assert ended(events[-1]) == (FinishReason.LENGTH, 3, 1, 1)
    assert up.asked[0].path == "/completion"
    assert (up.asked[0].body["prompt"], up.asked[0].body["min_p"]) == ([0, 1, 2], 0.0)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("vllm", "structured_outputs", {"json": '{"type":"object"}'}),
        ("llamacpp", "json_schema", {"type": "object"}),
    ],
)
async def test_grammars_are_passed(folder: Path, kind: str, name: str, value: object) -> None:
    grammar = Grammar(GrammarKind.JSON_SCHEMA, '{"type":"object"}')
    end: list[object] = (
        [vllm([], "stop"), USAGE, b"[DONE]"]
        if kind == "vllm"
        else [{"stop": True, "stop_type": "eos"}]
    )
    _, up = await spoken(kind, folder, end, grammar=grammar)
    assert up.asked[0].body[name] == value


@pytest.mark.parametrize("kind", ["sglang", "llamacpp"])
async def test_what_a_server_cannot_say_is_refused_by_name(folder: Path, kind: str) -> None:
    with pytest.raises(EngineRefused, match="several answers"):
        await spoken(kind, folder, [], n=2)
    with pytest.raises(EngineRefused, match="lark grammars"):
        await spoken(kind, folder, [], grammar=Grammar(GrammarKind.LARK, "start: x"))
