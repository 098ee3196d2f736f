"""What a batch's input may be, line by line."""

import io
import json

import pytest

from gateway.batches.input_file import check_input, read_line

CHAT = "/v1/chat/completions"


def line(custom_id: object = "a", **fields: object) -> dict[str, object]:
    body = {"model": "fake", "messages": [{"role": "user", "content": "größe"}]}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body, **fields}


def file_of(*lines: object) -> io.BytesIO:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines]
    return io.BytesIO(b"\n".join(texts))


def test_good_lines_are_found_again_where_they_are() -> None:
    file = file_of(line("a"), b"", line("b"), b"   ")
    checked = check_input(file, CHAT)
    assert checked.faults == []
    assert [one.custom_id for one in checked.lines] == ["a", "b"]
    assert [read_line(file, one).custom_id for one in reversed(checked.lines)] == ["b", "a"]


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (b"{", "invalid_json_line", None),
        (b"[]", "invalid_json_line", None),
        (line(7), "invalid_json_line", None),
        (line(extra=1), "invalid_json_line", None),
        (line(""), "invalid_custom_id", "custom_id"),
        (line("first"), "duplicate_custom_id", "custom_id"),
        (line(method="GET"), "invalid_method", "method"),
        (line(url="/v1/embeddings"), "mismatched_url", "url"),
        (line(body={"stream": True}), "invalid_value", "body.stream"),
        (line(body={"service_tier": "priority"}), "invalid_value", "body.service_tier"),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_run(bad: object, code: str, param: str | None) -> None:
    checked = check_input(file_of(line("first"), bad), CHAT)
    assert checked.lines == []
    [fault] = checked.faults
    assert (fault.code, fault.line, fault.param) == (code, 2, param)


def test_an_empty_file_and_one_with_too_many_lines_are_refused() -> None:
    assert check_input(file_of(b"", b" "), CHAT).faults[0].code == "empty_file"
    checked = check_input(file_of(line("a"), line("b"), line("c")), CHAT, max_lines=2)
    assert (checked.lines, checked.faults[0].code) == ([], "too_many_lines")
