import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import (
    AnswerEndEvent,
    AttendedEvent,
    AttendedSpan,
    Attention,
    EngineBusy,
    EngineError,
    EngineInfo,
    EngineLoad,
    EngineLost,
    EngineRefused,
    EngineStatus,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    Grammar,
    GrammarKind,
    GrammarRefused,
    ProgressEvent,
    PromptTooLong,
    ReadTimes,
    RequestExpired,
    Sampling,
    TokenEvent,
    TokenizerFiles,
    TokenLogprob,
)
from engines.face.wire import (
    Failure,
    MalformedWire,
    decode_event,
    decode_info,
    decode_request,
    decode_tokenizer,
    encode_event,
    encode_failure,
    encode_info,
    encode_request,
    encode_tokenizer,
    error_of,
)

FINISH = FinishEvent(
    reason=FinishReason.STOP,
    prompt_tokens=9,
    cached_tokens=0,
    completion_tokens=2,
    queue_s=0.5,
    prefill_s=1.5,
    decode_s=2.0,
)

GOLDEN: list[tuple[Event, bytes]] = [
    (
        ProgressEvent(43, 100),
        b'event: progress\ndata: {"done_tokens":43,"total_tokens":100,"times":null}\n\n',
    ),
    (
        ProgressEvent(43, 100, ReadTimes(0.5, (0.25, 0.125))),
        b'event: progress\ndata: {"done_tokens":43,"total_tokens":100,"times":'
        b'{"seconds":0.5,"turns_s":[0.25,0.125]}}\n\n',
    ),
    (
        AttendedEvent((AttendedSpan(64, 576, 0.75),), 0.875),
        b'event: attended\ndata: {"spans":[{"start":64,"stop":576,"mass":0.75}],'
        b'"recall":0.875}\n\n',
    ),
    (
        TokenEvent(17),
        b'event: token\ndata: {"id":17,"logprob":null,"top_logprobs":[],"index":0}\n\n',
    ),
    (
        TokenEvent(17, -0.5, (TokenLogprob(17, -0.5), TokenLogprob(3, -1.5))),
        b'event: token\ndata: {"id":17,"logprob":-0.5,"top_logprobs":'
        b'[{"id":17,"logprob":-0.5},{"id":3,"logprob":-1.5}],"index":0}\n\n',
    ),
    (
        AnswerEndEvent(index=2, reason=FinishReason.LENGTH, completion_tokens=7),
        b'event: answer_end\ndata: {"index":2,"reason":"length","completion_tokens":7}\n\n',
    ),
    (
        FINISH,
        b'event: finish\ndata: {"reason":"stop","prompt_tokens":9,"cached_tokens":0,'
        b'"completion_tokens":2,"queue_s":0.5,"prefill_s":1.5,"decode_s":2.0,'
        b'"reasoning_tokens":0}\n\n',
    ),
]

GOLDEN_FAILURES: list[tuple[EngineError, bytes]] = [
    (
        PromptTooLong(num_tokens=9000, limit=8192, attention=Attention.FULL),
        b'event: failure\ndata: {"code":"prompt_too_long","message":"prompt and answer need '
        b'9000 tokens; full attention holds 8192","fields":{"num_tokens":9000,"limit":8192,'
        b'"attention":"full"}}\n\n',
    ),
    (
        EngineBusy(queued=3, retry_after_s=2.5),
        b'event: failure\ndata: {"code":"engine_busy","message":"3 requests are waiting; retry '
        b'in 2 s","fields":{"queued":3,"retry_after_s":2.5}}\n\n',
    ),
    (
        EngineLost("gone"),
        b'event: failure\ndata: {"code":"engine_lost","message":"gone","fields":{}}\n\n',
    ),
    (
        RequestExpired("late"),
        b'event: failure\ndata: {"code":"request_expired","message":"late","fields":{}}\n\n',
    ),
    (
        EngineRefused("no"),
        b'event: failure\ndata: {"code":"engine_refused","message":"no","fields":{}}\n\n',
    ),
    (
        GrammarRefused("wat"),
        b'event: failure\ndata: {"code":"grammar_refused","message":"wat","fields":{}}\n\n',
    ),
]


def parse(sse: bytes) -> tuple[str, bytes]:
    first, second = sse.rstrip(b"\n").split(b"\n")
    return first.removeprefix(b"event: ").decode(), second.removeprefix(b"data: ")


@pytest.mark.parametrize(("event", "golden"), GOLDEN)
def test_events_have_these_bytes_and_come_back(event: Event, golden: bytes) -> None:
    assert encode_event(event) == golden
    assert decode_event(*parse(golden)) == event


@pytest.mark.parametrize(("error", "golden"), GOLDEN_FAILURES)
def test_failures_have_these_bytes_and_are_raised_again(error: EngineError, golden: bytes) -> None:
    assert encode_failure(error) == golden
    with pytest.raises(type(error)) as raised:
        decode_event(*parse(golden))
    assert str(raised.value) == str(error)
    assert vars(raised.value) == vars(error)


def test_a_request_has_these_bytes() -> None:
    request = GenerateRequest(
        request_id="r",
        prompt_ids=array("i", [1, 256]),
        max_new_tokens=4,
        stop_ids=(2,),
        deadline_s=12.0,
    )
    assert encode_request(request, now_s=10.0).hex() == (
        "8d"
        "aa726571756573745f6964a172"
        "aa70726f6d70745f696473c4080100000000010000"
        "ae6d61785f6e65775f746f6b656e7304"
        "a9617474656e74696f6ea466756c6c"
        "ae7175657374696f6e5f737461727400"
        "af646f63756d656e745f73746172747390"
        "a873616d706c696e6788"
        "ab74656d7065726174757265cb3ff0000000000000"
        "a5746f705f70cb3ff0000000000000"
        "a5746f705f6b00"
        "a47365656400"
        "b070726573656e63655f70656e616c7479cb0000000000000000"
        "b16672657175656e63795f70656e616c7479cb0000000000000000"
        "aa6c6f6769745f6269617380"
        "ac746f705f6c6f6770726f6273c0"
        "a873746f705f6964739102"
        "ac7365636f6e64735f6c656674cb4000000000000000"
        "ac736572766963655f74696572a764656661756c74"
        "a16e01"
        "a76772616d6d6172c0"
        "a963616368655f6b6579a0"
    )


@given(
    ids=st.lists(st.integers(-(2**31), 2**31 - 1)),
    left_s=st.one_of(st.just(math.inf), st.floats(0, 1e6)),
    bias=st.dictionaries(st.integers(0, 10**6), st.floats(-100, 100)),
    seed=st.integers(0, 2**63 - 1),
)
def test_requests_come_back_with_the_deadline_on_the_other_clock(
    ids: list[int], left_s: float, bias: dict[int, float], seed: int
) -> None:
    request = GenerateRequest(
        request_id="r",
        prompt_ids=array("i", ids),
        max_new_tokens=1,
        attention=Attention.HIERARCHICAL,
        question_start=3,
        document_starts=(1, 2),
        sampling=Sampling(logit_bias=bias, seed=seed, top_logprobs=3),
        stop_ids=(1, 2),
        deadline_s=100.0 + left_s,
        service_tier="flex",
        n=3,
        grammar=Grammar(GrammarKind.REGEX, "a+"),
        cache_key="tenant/session",
    )
    back = decode_request(encode_request(request, now_s=100.0), now_s=0.0)
    assert back.prompt_ids == request.prompt_ids
    assert back.sampling == request.sampling
    assert back.deadline_s == pytest.approx(left_s)
    assert back.n == 3
    assert (back.grammar, back.cache_key) == (request.grammar, request.cache_key)
    assert (back.attention, back.question_start, back.document_starts, back.service_tier) == (
        Attention.HIERARCHICAL,
        3,
        (1, 2),
        "flex",
    )


@pytest.mark.parametrize("body", [b"", b"\x80", b"{}", b"\xc1", b"\x81\xa1x\x01"])
def test_a_malformed_request_is_told_apart(body: bytes) -> None:
    with pytest.raises(MalformedWire):
        decode_request(body, 0.0)


def test_ids_that_are_cut_off_are_malformed() -> None:
    whole = encode_request(
        GenerateRequest(request_id="r", prompt_ids=array("i", [5]), max_new_tokens=1), 0.0
    )
    cut = whole.replace(b"\xc4\x04\x05\x00\x00\x00", b"\xc4\x03\x05\x00\x00")
    with pytest.raises(MalformedWire):
        decode_request(cut, 0.0)


@pytest.mark.parametrize(
    ("name", "data"),
    [("bang", b"{}"), ("token", b"{}"), ("token", b"nonsense"), ("failure", b"[]")],
)
def test_an_unknown_event_is_malformed(name: str, data: bytes) -> None:
    with pytest.raises(MalformedWire):
        decode_event(name, data)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(code="unheard_of", message="?"),
        Failure(code="prompt_too_long", message="?"),
        Failure(code="engine_busy", message="?", fields={"queued": "many", "retry_after_s": 1}),
    ],
)
def test_an_incomplete_failure_is_malformed(failure: Failure) -> None:
    with pytest.raises(MalformedWire):
        error_of(failure)


def test_info_and_tokenizer_come_back() -> None:
    info = EngineInfo(
        model="m",
        status=EngineStatus.DEGRADED,
        ranks=2,
        epoch=3,
        dtype="float32",
        window_tokens=10,
        context_tokens={Attention.FULL: 10, Attention.HIERARCHICAL: 20},
        kv_bytes_per_token=1,
        kv_budget_tokens=20,
        tokenizer_digest="d",
        load=EngineLoad(running=1, queued=2, queued_prefill_tokens=3),
    )
    assert decode_info(encode_info(info)) == info
    files = TokenizerFiles(
        tokenizer_json=b"{\x00}",
        chat_template="{{ x }}",
        special_tokens={"bos_token": "<s>"},
        stop_ids=(1, 2),
        digest="d",
    )
    assert decode_tokenizer(encode_tokenizer(files)) == files
