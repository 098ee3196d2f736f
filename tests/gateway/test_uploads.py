"""The official client's upload methods, and `expires_after` of files, on a real socket."""

import hashlib
import socket
from pathlib import Path

import httpx
import openai
import pytest

from ingest.fake import FakeLibrary
from tests.gateway.fakes import Start

RAW = b"The keeper feeds the gulls with herring.\n" * 100
MIME = "text/plain"


def test_a_file_goes_up_in_parts(start: Start, tmp_path: Path) -> None:
    client = start().client()
    path = tmp_path / "lease.txt"
    path.write_bytes(RAW)
    md5 = hashlib.md5(RAW, usedforsecurity=False).hexdigest()
    done = client.uploads.upload_file_chunked(
        file=path, mime_type=MIME, purpose="assistants", part_size=1000, md5=md5
    )
    assert (done.object, done.status, done.bytes) == ("upload", "completed", len(RAW))
    assert done.file is not None
    assert done.file.filename == "lease.txt"
    assert client.files.content(done.file.id).read() == RAW


def test_parts_are_joined_in_the_order_named_and_must_add_up(start: Start) -> None:
    client = start().client()
    made = client.uploads.create(bytes=6, filename="a.txt", mime_type=MIME, purpose="user_data")
    assert (made.status, made.expires_at) == ("pending", made.created_at + 3600)
    last = client.uploads.parts.create(made.id, data=b"def")
    first = client.uploads.parts.create(made.id, data=b"abc")
    assert (first.object, first.upload_id) == ("upload.part", made.id)
    with pytest.raises(openai.BadRequestError, match="6 were announced") as caught:
        client.uploads.complete(made.id, part_ids=[first.id])
    assert caught.value.param == "part_ids"
    with pytest.raises(openai.BadRequestError, match="md5") as caught:
        client.uploads.complete(made.id, part_ids=[first.id, last.id], md5="0" * 32)
    assert caught.value.param == "md5"
    done = client.uploads.complete(made.id, part_ids=[first.id, last.id])
    assert done.file is not None
    assert client.files.content(done.file.id).read() == b"abcdef"
    with pytest.raises(openai.BadRequestError) as caught:
        client.uploads.parts.create(made.id, data=b"late")
    assert caught.value.code == "upload_closed"


def test_a_cancelled_upload_is_closed(start: Start) -> None:
    client = start().client()
    made = client.uploads.create(bytes=6, filename="a.txt", mime_type=MIME, purpose="user_data")
    assert client.uploads.cancel(made.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError):
        client.uploads.complete(made.id, part_ids=["part_1"])
    with pytest.raises(openai.NotFoundError) as caught:
        client.uploads.cancel("upload_nobody")
    assert caught.value.code == "upload_not_found"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"bytes": 8 * 2**30 + 1}, "bytes", "integer_above_max_value"),
        ({"bytes": 0}, "bytes", "integer_below_min_value"),
        ({"purpose": "fine-tune"}, "purpose", "invalid_value"),
        ({"mime_type": None}, "mime_type", "invalid_type"),
        (
            {"expires_after": {"anchor": "created_at", "seconds": 60}},
            "expires_after.seconds",
            "integer_below_min_value",
        ),
    ],
)
def test_what_cannot_be_uploaded_is_refused_by_name(
    start: Start, fields: dict[str, object], param: str, code: str
) -> None:
    good = {"bytes": 6, "filename": "a.txt", "mime_type": MIME, "purpose": "user_data"}
    answer = httpx.post(f"{start().url}/v1/uploads", json=good | fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)


def test_a_part_over_64_mebibytes_is_refused_before_it_is_read(start: Start) -> None:
    gateway = start()
    made = gateway.client().uploads.create(
        bytes=6, filename="a.txt", mime_type=MIME, purpose="user_data"
    )
    head = (
        f"POST /v1/uploads/{made.id}/parts HTTP/1.1\r\nHost: gateway\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {66 << 20}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as connection:
        connection.sendall(head.encode())
        answer = ""
        while "}" not in answer and (part := connection.recv(4096)):
            answer += part.decode()
    assert answer.startswith("HTTP/1.1 413 ")
    assert "request_too_large" in answer


def test_a_file_may_have_an_end(start: Start) -> None:
    class Clock:
        now = 1_700_000_000.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    client = start(library=FakeLibrary(clock=clock)).client()
    made = client.files.create(
        file=("a.txt", b"hello"),
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert made.expires_at == made.created_at + 3600
    clock.now += 3599
    assert client.files.retrieve(made.id).id == made.id
    clock.now += 2
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    assert client.files.list().data == []


@pytest.mark.parametrize(
    ("anchor", "seconds", "param"),
    [
        ("last_active_at", "3600", "expires_after[anchor]"),
        ("created_at", "3599", "expires_after[seconds]"),
        ("created_at", "2592001", "expires_after[seconds]"),
        ("created_at", "soon", "expires_after[seconds]"),
        (None, "3600", "expires_after[anchor]"),
    ],
)
def test_an_end_that_cannot_be_is_refused(
    start: Start, anchor: str | None, seconds: str, param: str
) -> None:
    data = {"purpose": "user_data", "expires_after[seconds]": seconds}
    if anchor is not None:
        data["expires_after[anchor]"] = anchor
    answer = httpx.post(f"{start().url}/v1/files", files={"file": ("a", b"x")}, data=data)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
