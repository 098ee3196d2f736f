import httpx
import openai
import pytest

from ingest.fake import FakeLibrary
from tests.gateway.fakes import Start


def test_a_file_is_uploaded_listed_read_and_deleted(start: Start) -> None:
    client = start().client()
    made = client.files.create(file=("a ü.txt", b"hello"), purpose="user_data")
    assert (made.status, made.bytes, made.filename) == ("uploaded", 5, "a ü.txt")
    assert client.files.retrieve(made.id).status == "processed"
    assert client.files.content(made.id).read() == b"hello"
    assert [file.id for file in client.files.list()] == [made.id]
    assert client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(made.id)
    assert client.files.list().data == []


def test_a_failed_file_says_why(start: Start) -> None:
    client = start().client()
    made = client.files.create(file=("a.txt", b""), purpose="user_data")
    found = client.files.retrieve(made.id)
    assert found.status == "error"
    assert found.status_details is not None
    assert "empty" in found.status_details


def test_pages_follow_one_another(start: Start) -> None:
    client = start().client()
    ids = [client.files.create(file=(f"{i}", b"x"), purpose="user_data").id for i in range(5)]
    assert [file.id for file in client.files.list(limit=2)] == ids[::-1]
    assert [file.id for file in client.files.list(limit=2, order="asc")] == ids
    page = client.files.list(limit=2)
    assert page.has_more
    assert client.files.list(purpose="assistants").data == []


def test_the_purpose_may_come_after_the_file(start: Start) -> None:
    raw = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n'
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--b--\r\n'
    )
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = httpx.post(f"{start().url}/v1/files", content=raw, headers=headers)
    assert answer.json()["purpose"] == "user_data"
    assert answer.json()["bytes"] == 5


UNSUPPORTED = "unsupported_parameter"
FILE = {"file": ("a.txt", b"x")}


@pytest.mark.parametrize(
    ("files", "data", "param", "code"),
    [
        (FILE, {}, "purpose", "missing_required_parameter"),
        (FILE, {"purpose": "fine-tune"}, "purpose", "invalid_value"),
        ({"other": ("a", b"x")}, {"purpose": "user_data"}, "other", UNSUPPORTED),
        (
            FILE,
            {"purpose": "user_data", "expires_after[days]": "9"},
            "expires_after[days]",
            "unsupported_parameter",
        ),
    ],
)
def test_bad_forms_are_refused_by_name(
    start: Start, files: dict[str, tuple[str, bytes]], data: dict[str, str], param: str, code: str
) -> None:
    answer = httpx.post(f"{start().url}/v1/files", files=files, data=data)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code)


@pytest.mark.parametrize("raw", [b"", b"garbage", b"--b\r\n\r\n", b"--b\r\nContent-Dispo"])
def test_a_broken_form_is_a_400(start: Start, raw: bytes) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    answer = httpx.post(f"{start().url}/v1/files", content=raw, headers=headers)
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_what_the_library_refuses_is_a_413(start: Start) -> None:
    gateway = start(library=FakeLibrary(max_file_bytes=3))
    files = {"file": ("a.txt", b"hello")}
    answer = httpx.post(f"{gateway.url}/v1/files", files=files, data={"purpose": "user_data"})
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "file_too_large"


def test_each_call_is_logged_once_with_its_operation_and_its_end(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gateway.outcomes")
    running = start()
    client = running.client()
    client.files.create(file=("secret name.txt", b"hello"), purpose="user_data")
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.retrieve("vs_unknown")

    lines = [vars(record) for record in caplog.records if record.message == "request"]
    assert [(x["endpoint"], x["operation"], x["outcome"], x["code"]) for x in lines] == [
        ("files", "create_file", "finished", ""),
        ("vector_stores", "retrieve_vector_store", "failed", lines[1]["code"]),
    ]
    assert lines[1]["code"]
    assert "secret name" not in repr(lines)
