from pathlib import Path

import pytest

from gateway.settings import GatewaySettings


def test_settings_come_from_the_environment_and_secrets_do_not_show() -> None:
    settings = GatewaySettings.from_environ(
        {
            "PATH": "/bin",
            "RINGWAY_PORT": "9000",
            "RINGWAY_DATA_DIR": "/tmp/x",
            "RINGWAY_API_KEYS": "sk-one, sk-two",
            "RINGWAY_INGEST_LANES": "3",
            "RINGWAY_TEST_DATA": "x",
        }
    )
    assert (settings.port, settings.data_dir) == (9000, Path("/tmp/x"))
    assert [key.get_secret_value() for key in settings.api_keys] == ["sk-one", "sk-two"]
    assert "sk-one" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("RINGWAY_PROT", "1", "unknown setting RINGWAY_PROT"),
        ("RINGWAY_PORT", "many", "RINGWAY_PORT cannot be read"),
        ("RINGWAY_PORT", "70000", "between 0 and 65535"),
        ("RINGWAY_ENGINE", "localhost:1", "http"),
        ("RINGWAY_KEEP_ALIVE_S", "0", "keep_alive_s"),
        ("RINGWAY_MAX_BODY_BYTES", "1", "at least 1024"),
        ("RINGWAY_API_KEYS", ",", "RINGWAY_API_KEYS cannot be read"),
    ],
)
def test_a_bad_setting_refuses_to_start(name: str, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        GatewaySettings.from_environ({name: value})
