"""Settings of events come from the environment, and a mistake there is not forgiven."""

import pytest

from ingest.events.settings import EventSettings, settings_from


def test_every_kind_of_value_is_read() -> None:
    environ = {
        "RINGWAY_EVENTS_QUEUE_URL": "https://sqs/1/q",
        "RINGWAY_EVENTS_LANES": "4",
        "RINGWAY_EVENTS_MARGIN_S": "2.5",
        "RINGWAY_INGEST_LANES": "8",
    }
    expected = EventSettings(queue_url="https://sqs/1/q", lanes=4, margin_s=2.5)
    assert settings_from(environ) == expected
    assert settings_from(environ, queue_url="https://mine").queue_url == "https://mine"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RINGWAY_EVENTS_LANE": "2"}, "unknown setting RINGWAY_EVENTS_LANE"),
        ({"RINGWAY_EVENTS_LANES": "two"}, "lanes"),
        ({"RINGWAY_EVENTS_LANES": "0"}, "lanes, visibility_s and within_s must be positive"),
        ({"RINGWAY_EVENTS_WAIT_S": "21"}, "0 to 20 seconds, not 21"),
        ({"RINGWAY_EVENTS_MAX_RECEIVES": "0"}, "max_receives must be positive"),
    ],
)
def test_a_mistake_is_an_error(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_from(environ)
