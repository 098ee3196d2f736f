import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from gateway.api import Fidelity, Unauthorized
from gateway.auth import Door, KeyRing
from gateway.cli.main import Refusal, main
from gateway.cli.serve import refuse_open_address
from gateway.settings import GatewaySettings
from gateway.tenancy.api import Grants
from gateway.tenancy.keys import IssuedKey, KeyBook, digest_of, is_well_formed, new_key_text
from gateway.tenancy.schema import metadata
from gateway.tenancy.spending import SqlSpending
from ingest.database import Database, sqlite_url
from tests.contracts.library_benches import POSTGRES
from tests.gateway import plain_http
from tests.gateway.fakes import Start

GRANTS = Grants(models=("m",), fidelities=(Fidelity.AUTO,), tokens_per_min=10)


@dataclass(slots=True)
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def book_of(folder: Path, clock: Clock) -> AsyncIterator[tuple[Database, KeyBook]]:
    database = await Database.connect(sqlite_url(folder / "m.db"), metadata)
    try:
        yield database, KeyBook(database, clock=clock)
    finally:
        await database.aclose()


async def test_a_key_opens_the_door_until_it_is_revoked_or_ends(tmp_path: Path) -> None:
    clock = Clock()
    async with book_of(tmp_path, clock) as (_, book):
        door = Door(KeyRing(), book, clock=clock)
        assert (await door.caller(None)).tenant == "local"  # no key was ever issued
        clock.now_s += 1
        key, text = await book.create(name="n", tenant="acme", grants=GRANTS, expires_at=2000)
        caller = await door.caller(f"Bearer {text}")
        assert (caller.tenant, caller.key_id, caller.grants) == ("acme", key.id, GRANTS)
        almost = text[:-1] + ("1" if text.endswith("0") else "0")
        for wrong in (None, "Bearer rk-x", f"Bearer {new_key_text()}", f"Bearer {almost}"):
            with pytest.raises(Unauthorized):
                await door.caller(wrong)
        assert await book.revoke(key.id)
        assert not await book.revoke(key.id)
        clock.now_s += 0.99
        with pytest.raises(Unauthorized):
            await door.caller(f"Bearer {text}")
        with pytest.raises(Unauthorized):
            await door.caller(None)  # the last key is gone, and the door stays shut
        _, late = await book.create(name="n", tenant="a", grants=Grants(), expires_at=2000)
        await door.caller(f"Bearer {late}")
        clock.now_s = 2000
        with pytest.raises(Unauthorized, match="expired"):
            await door.caller(f"Bearer {late}")


async def test_no_key_is_kept_on_disk(tmp_path: Path) -> None:
    async with book_of(tmp_path, Clock()) as (_, book):
        _, text = await book.create(name="n", tenant="a", grants=Grants(), expires_at=None)
        found = await book.find(digest_of(text))
        assert found is not None
        assert found.hint == text[-4:]
    kept = bytes_under(tmp_path)
    assert text.encode() not in kept
    assert digest_of(text).encode() in kept


def bytes_under(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def test_keys_are_random_and_a_mistyped_one_is_told_without_a_look_up() -> None:
    one, two = new_key_text(), new_key_text()
    assert one != two
    assert len(one) == 54
    assert is_well_formed(one)
    broken = one[:10] + ("a" if one[10] != "a" else "b") + one[11:]
    assert not is_well_formed(broken)


@pytest.mark.parametrize("tenant", ["", "A", "a/b", "a b", "x" * 64])
async def test_a_tenants_name_has_a_shape(tmp_path: Path, tenant: str) -> None:
    async with book_of(tmp_path, Clock()) as (_, book):
        with pytest.raises(ValueError, match="is no tenant"):
            await book.create(name="n", tenant=tenant, grants=Grants(), expires_at=None)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    url = sqlite_url(tmp_path / "m.db")
    if request.param == "postgres":
        url = os.environ.get(POSTGRES, "")
        if not url:
            pytest.skip(f"{POSTGRES} names no database, such as postgresql+asyncpg://…")
    opened = await Database.connect(url, metadata)
    yield opened
    await opened.aclose()


async def test_keys_and_spending_are_the_same_on_every_database(database: Database) -> None:
    book, spending = KeyBook(database, clock=Clock()), SqlSpending(database)
    key, text = await book.create(name="n", tenant="a", grants=GRANTS, expires_at=None)
    assert await book.find(digest_of(text)) == key
    assert key in await book.list()
    assert await spending.of(key.id, "2026-12") == 0
    assert await spending.add(key.id, "2026-12", 5) == 5
    assert await spending.add(key.id, "2026-12", 7) == 12
    assert await spending.of(key.id, "2026-12") == 12
    assert await book.revoke(key.id)


def test_the_command_issues_lists_and_revokes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    where = ["--data-dir", str(tmp_path)]
    created = ["create", "--name", "ci", "--tenant", "acme", "--tokens-per-minute", "500"]
    assert main(["keys", *created, "--expires", "30d", "--monthly-budget", "2.5", *where]) == 0
    shown = capsys.readouterr()
    text = shown.out.strip()
    assert is_well_formed(text)
    assert text not in shown.err
    assert main(["keys", "list", *where]) == 0
    listed = capsys.readouterr().out
    for word in ("ci", "acme", "500 tokens/min", "2.5 a month", "valid", f"rk-…{text[-4:]}"):
        assert word in listed
    assert text not in listed
    with sqlite3.connect(tmp_path / "metadata.db") as connection:
        (key_id,) = connection.execute("SELECT id FROM api_keys").fetchone()
    connection.close()
    assert main(["keys", "revoke", key_id, *where]) == 0
    assert main(["keys", "revoke", key_id, *where]) == 2
    assert main(["keys", "create", "--name", "x", "--expires", "soon", *where]) == 2
    assert main(["keys", "create", "--name", "x", "--tokens-per-minute", "0", *where]) == 2
    refusals = capsys.readouterr().err
    for word in ("revoked already", "'soon' is neither", "at least 1"):
        assert word in refusals


def test_an_issued_key_lets_the_gateway_listen_to_others(tmp_path: Path) -> None:
    settings = GatewaySettings(data_dir=tmp_path)
    with pytest.raises(Refusal, match="ringway keys create"):
        refuse_open_address("0.0.0.0", settings, insecure=False)
    assert list(tmp_path.iterdir()) == []  # looking made no database
    refuse_open_address("0.0.0.0", settings, insecure=True)
    assert main(["keys", "create", "--name", "x", "--data-dir", str(tmp_path)]) == 0
    refuse_open_address("0.0.0.0", settings, insecure=False)


@dataclass(slots=True)
class Issued:
    """Keys without a database."""

    keys: dict[str, IssuedKey] = field(default_factory=dict)

    async def find(self, digest: str) -> IssuedKey | None:
        return self.keys.get(digest)

    async def get(self, key_id: str) -> IssuedKey | None:
        return next((key for key in self.keys.values() if key.id == key_id), None)

    async def any(self) -> bool:
        return bool(self.keys)

    def issue(self, tenant: str, grants: Grants | None = None) -> dict[str, str]:
        """The headers of a new key of the tenant."""
        text = new_key_text()
        self.keys[digest_of(text)] = IssuedKey(
            id=f"key_{len(self.keys)}",
            hint=text[-4:],
            name="n",
            tenant=tenant,
            grants=grants or Grants(),
            created_at=0,
        )
        return {"authorization": f"Bearer {text}"}


def test_a_tenant_sees_only_its_own_files_stores_and_uploads(start: Start) -> None:
    issued = Issued()
    ours, theirs = issued.issue("acme"), issued.issue("other")
    gateway = start(issued=issued)

    def call(method: str, path: str, headers: dict[str, str], **sent: object) -> httpx.Response:
        return plain_http.request(method, f"{gateway.url}{path}", headers=headers, **sent)  # type: ignore[arg-type]

    form = {
        "files": {"file": ("a.txt", b"The lease ends in March.")},
        "data": {"purpose": "user_data"},
    }
    file_id = call("POST", "/v1/files", ours, **form).json()["id"]
    store = {"json": {"name": "s", "file_ids": [file_id]}}
    store_id = call("POST", "/v1/vector_stores", ours, **store).json()["id"]
    new = {"filename": "b", "purpose": "user_data", "bytes": 1, "mime_type": "text/plain"}
    upload_id = call("POST", "/v1/uploads", ours, json=new).json()["id"]
    asking = {"role": "user", "content": [{"type": "file", "file": {"file_id": file_id}}]}
    question = {"model": "fake", "messages": [asking, {"role": "user", "content": "When?"}]}
    foreign: list[tuple[str, str, dict[str, object]]] = [
        ("GET", f"/v1/files/{file_id}", {}),
        ("GET", f"/v1/files/{file_id}/content", {}),
        ("DELETE", f"/v1/files/{file_id}", {}),
        ("GET", f"/v1/vector_stores/{store_id}", {}),
        ("POST", f"/v1/vector_stores/{store_id}", {"json": {"name": "x"}}),
        ("DELETE", f"/v1/vector_stores/{store_id}", {}),
        ("POST", f"/v1/vector_stores/{store_id}/search", {"json": {"query": "lease"}}),
        ("GET", f"/v1/vector_stores/{store_id}/files", {}),
        ("GET", f"/v1/vector_stores/{store_id}/files/{file_id}/content", {}),
        ("POST", "/v1/vector_stores", {"json": {"file_ids": [file_id]}}),
        ("POST", f"/v1/uploads/{upload_id}/cancel", {}),
        ("POST", "/v1/chat/completions", {"json": question}),
    ]
    for method, path, sent in foreign:
        assert call(method, path, theirs, **sent).status_code == 404, (method, path)
    for path in ("/v1/files", "/v1/vector_stores"):
        assert call("GET", path, theirs).json()["data"] == []
        assert len(call("GET", path, ours).json()["data"]) == 1
    assert call("POST", "/v1/chat/completions", ours, json=question).status_code == 200
    assert call("GET", "/v1/files", {}).status_code == 401


def test_a_key_asks_for_what_it_grants_and_no_more(start: Start) -> None:
    issued = Issued()
    narrow = issued.issue("a", Grants(fidelities=(Fidelity.FULL,)))
    other_model = issued.issue("a", Grants(models=("large",)))
    gateway = start(issued=issued)
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}

    def ask(headers: dict[str, str], **more: str) -> httpx.Response:
        url = f"{gateway.url}/v1/chat/completions"
        return plain_http.post(url, headers=headers, json={**body, **more})

    assert ask(narrow, fidelity="full").status_code == 200
    refused = ask(narrow)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "fidelity_forbidden")
    assert "it may ask for 'full'" in refused.json()["error"]["message"]
    shown = plain_http.get(f"{gateway.url}/v1/models", headers=other_model).json()
    assert shown["data"] == []
    unknown = ask(other_model)
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
