"""Settings come from the environment, and a mistake there is not forgiven."""

from pathlib import Path

import pytest

from ingest.settings import IngestSettings, settings_from


def test_every_kind_of_value_is_read() -> None:
    settings = settings_from(
        {
            "RINGWAY_INGEST_DATA_DIR": "/data",
            "RINGWAY_INGEST_LANES": "4",
            "RINGWAY_INGEST_POLL_S": "0.5",
            "RINGWAY_INGEST_EMBEDDER": "my/model",
            "RINGWAY_OTHER": "ignored",
        }
    )
    assert settings == IngestSettings(
        data_dir=Path("/data"), lanes=4, poll_s=0.5, embedder="my/model"
    )
    assert settings.sql_url == "sqlite:////data/metadata.db"
    assert settings.index_dir == Path("/data/index")


def test_the_callers_data_dir_comes_first() -> None:
    environ = {"RINGWAY_INGEST_DATA_DIR": "/data"}
    assert settings_from(environ, data_dir=Path("/mine")).data_dir == Path("/mine")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "DATA_DIR is not set"),
        ({"RINGWAY_INGEST_LANE": "2"}, "unknown setting RINGWAY_INGEST_LANE"),
        ({"RINGWAY_INGEST_lanes": "2"}, "unknown setting RINGWAY_INGEST_lanes"),
        ({"RINGWAY_INGEST_LANES": "two"}, "lanes"),
        ({"RINGWAY_INGEST_LANES": "0"}, "lanes must be positive"),
        ({"RINGWAY_INGEST_LEASE_S": "-1"}, "lease_s must be positive"),
    ],
)
def test_a_mistake_is_an_error(environ: dict[str, str], message: str) -> None:
    data_dir = None if not environ else Path("/data")
    with pytest.raises(ValueError, match=message):
        settings_from(environ, data_dir=data_dir)


def test_a_database_password_is_not_printed() -> None:
    settings = IngestSettings(data_dir=Path("/d"), database_url="postgresql://u:hunter2@h/d")
    assert "hunter2" not in repr(settings)
