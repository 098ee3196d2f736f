"""/v1/responses/compact: a conversation made short, and gone on with."""

import base64
import zlib
from typing import Any

import httpx
import openai
import pytest

from gateway.openai.compaction import MARK, pack, unpack
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say
from tests.gateway.responses.test_responses import read_by

SUMMARY = "The launch is on Tuesday; support is told first."
TALK: Any = [
    {"role": "user", "content": "We launch on Tuesday."},
    {"role": "assistant", "content": "Understood; support is told first."},
]


def compact(gateway: Running, **fields: Any) -> Any:
    return gateway.client().responses.compact(model="fake", **fields)


def test_it_has_openai_s_shape_the_user_s_messages_and_one_compaction(start: Start) -> None:
    engine = BpeEngine(bpe_say(SUMMARY))
    told = compact(start(engine), input=TALK, instructions="Be brief.")
    assert (told.object, told.id[:5]) == ("response.compaction", "resp_")
    message, item = told.output
    assert (message.role, message.content[0].text) == ("user", "We launch on Tuesday.")
    assert (item.type, unpack(item.encrypted_content)) == ("compaction", SUMMARY)
    assert told.usage.input_tokens == len(engine.requests[0].prompt_ids)
    assert told.usage.output_tokens > 0
    read = read_by(engine)
    assert "support is told first" in read
    assert read.index("Be brief.") < read.index("We launch") < read.index("Write a summary")


def test_the_output_begins_a_new_conversation(start: Start) -> None:
    engine = BpeEngine(bpe_say(SUMMARY))
    gateway = start(engine)
    output = [item.to_dict(warnings=False) for item in compact(gateway, input=TALK).output]
    more = {"role": "user", "content": "Who is told first?"}
    client: Any = gateway.client()
    first = client.responses.create(model="fake", input=[*output, more])
    told = (
        "<|im_start|>user\nWe launch on Tuesday.<|im_end|>\n<|im_start|>assistant\n"
        f"Summary of the conversation so far:\n\n{SUMMARY}<|im_end|>\n"
        "<|im_start|>user\nWho is told first?<|im_end|>\n"
    )
    assert told in read_by(engine)
    client.responses.create(model="fake", input="Sure?", previous_response_id=first.id)
    assert told in read_by(engine), "what was kept is read with it"


def test_a_kept_conversation_is_compacted_by_its_last_response(start: Start) -> None:
    engine = BpeEngine(bpe_say("Understood."))
    gateway = start(engine)
    client = gateway.client()
    first = client.responses.create(model="fake", input="We launch on Tuesday.")
    told = compact(gateway, previous_response_id=first.id)
    assert [item.type for item in told.output] == ["message", "compaction"]
    assert "Understood." in read_by(engine)
    with pytest.raises(openai.BadRequestError) as refused:
        compact(gateway, previous_response_id="resp_nobody")
    assert refused.value.code == "previous_response_not_found"


@pytest.mark.parametrize("said", ["", "the fox " * 20_000])
def test_a_summary_without_an_end_is_an_error_and_no_summary(start: Start, said: str) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        compact(start(BpeEngine(bpe_say(said))), input=TALK)
    assert failed.value.code == "compaction_incomplete"


BROKEN = {
    "somebody else's": "gAAAAABk",
    "cut": pack(SUMMARY * 9)[:-9],
    "no base64": f"{MARK}%%%",
    "no zip": f"{MARK}AAAA",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_what_was_not_packed_here_is_refused_by_its_place(start: Start, content: str) -> None:
    items = [*TALK, {"type": "compaction", "encrypted_content": content}]
    answer = httpx.post(f"{start().url}/v1/responses", json={"model": "fake", "input": items})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_encrypted_content")
    assert error["param"] == "input[2].encrypted_content"


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"summary":"' + b"x" * 2**24))
    with pytest.raises(ValueError, match="not whole"):
        unpack(MARK + bomb.decode())


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"model": "fake"}, "input", "missing_required_parameter"),
        ({"input": "hi"}, "model", "missing_required_parameter"),
        ({"model": "fake", "input": "hi", "image": {}}, "image", "unsupported_parameter"),
        (
            {"model": "fake", "input": [{"type": "reasoning"}]},
            "input[0].type",
            "unsupported_parameter",
        ),
        ({"model": "fake", "input": "hi", "colour": 1}, "colour", "unknown_parameter"),
    ],
)
def test_what_is_wrong_is_named(
    start: Start, fields: dict[str, Any], param: str, code: str
) -> None:
    answer = httpx.post(f"{start().url}/v1/responses/compact", json=fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)
