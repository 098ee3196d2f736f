import httpx
import pytest
from pydantic import SecretStr

from gateway.api import Unauthorized
from gateway.auth import KeyRing, may_bind
from tests.gateway.fakes import Start

KEYS = KeyRing([SecretStr("sk-one"), SecretStr("sk-two")])


@pytest.mark.parametrize("header", ["Bearer sk-one", "bearer sk-two", "Bearer  sk-one "])
def test_a_known_key_names_its_tenant(header: str) -> None:
    assert KEYS.caller(header).tenant == "local"


@pytest.mark.parametrize("header", [None, "", "sk-one", "Basic sk-one", "Bearer", "Bearer sk-x"])
def test_any_other_is_unauthorized_and_not_repeated(header: str | None) -> None:
    with pytest.raises(Unauthorized) as caught:
        KEYS.caller(header)
    assert "sk-" not in str(caught.value)


def test_without_keys_everyone_is_local() -> None:
    assert KeyRing().caller(None).tenant == "local"


@pytest.mark.parametrize(
    ("host", "keys", "allowed"),
    [
        ("127.0.0.1", KeyRing(), True),
        ("::1", KeyRing(), True),
        ("localhost", KeyRing(), True),
        ("0.0.0.0", KeyRing(), False),
        ("example.org", KeyRing(), False),
        ("0.0.0.0", KEYS, True),
    ],
)
def test_an_open_gateway_binds_to_loopback_only(host: str, keys: KeyRing, allowed: bool) -> None:
    assert may_bind(host, keys) is allowed


def test_every_v1_path_wants_a_key_and_health_does_not(start: Start) -> None:
    gateway = start(keys=KEYS)
    for method, path in (
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/files"),
        ("POST", "/v1/files"),
    ):
        answer = httpx.request(method, f"{gateway.url}{path}")
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
    headers = {"authorization": "Bearer sk-one"}
    assert httpx.get(f"{gateway.url}/v1/models", headers=headers).status_code == 200
    assert httpx.get(f"{gateway.url}/health/live").status_code == 200
