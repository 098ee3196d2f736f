"""Whatever a message is, it is read, ignored or refused with a reason; nothing is guessed."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.events.notices import Change, ObjectNotice, canonical_sequencer, read_message
from tests.ingest.events.messages_of_s3 import BUCKET, Told, direct, in_eventbridge, in_sns, record

KEYS = st.text(min_size=1, max_size=200).filter(
    lambda key: "\0" not in key and not key.endswith("/")
)
HEX = st.text("0123456789ABCDEF", min_size=1, max_size=24)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def only(body: str) -> ObjectNotice:
    reading = read_message(body)
    assert (reading.ignored, reading.refused) == ((), ())
    [notice] = reading.notices
    return notice


@given(key=KEYS, name=st.sampled_from(["ObjectCreated:Put", "ObjectRemoved:Delete"]))
def test_a_key_of_any_characters_arrives_the_same_by_every_way(key: str, name: str) -> None:
    told = Told(key=key, name=name)
    assert only(direct(told)).key == key
    assert only(in_sns(direct(told))) == only(direct(told))
    assert only(in_eventbridge(told)) == only(direct(told))
    assert only(in_sns(in_eventbridge(told))) == only(direct(told))


def test_only_a_key_that_s3_encoded_is_decoded() -> None:
    assert only(direct(Told(key="a+b c%20d"))).key == "a+b c%20d"
    assert only(in_eventbridge(Told(key="a+b%20c"))).key == "a+b%20c"


def test_everything_an_event_tells_is_kept() -> None:
    told = Told(key="x.pdf", size=7, etag='"abc-2"', version_id="3/L4kqtJ", sequencer="00c0ff00")
    assert only(direct(told)) == ObjectNotice(
        change=Change.CREATED,
        bucket=BUCKET,
        key="x.pdf",
        sequencer="00C0FF",
        region="eu-central-1",
        num_bytes=7,
        etag="abc-2",
        version_id="3/L4kqtJ",
    )


@given(HEX, HEX)
def test_sequencers_are_ordered_as_if_padded_with_zeros(one: str, other: str) -> None:
    width = max(len(one), len(other))
    padded = one.ljust(width, "0"), other.ljust(width, "0")
    ours = canonical_sequencer(one), canonical_sequencer(other.lower())
    assert (ours[0] < ours[1], ours[0] == ours[1]) == (
        padded[0] < padded[1],
        padded[0] == padded[1],
    )


@pytest.mark.parametrize(
    ("name", "version_id", "deletion_type", "change"),
    [
        ("ObjectRemoved:Delete", None, "Permanently Deleted", Change.REMOVED),
        ("ObjectRemoved:Delete", "v1", "Permanently Deleted", Change.VERSION_REMOVED),
        ("ObjectRemoved:DeleteMarkerCreated", "v2", "Delete Marker Created", Change.REMOVED),
        ("LifecycleExpiration:Delete", None, None, Change.REMOVED),
        ("s3:ObjectCreated:CompleteMultipartUpload", "v3", None, Change.CREATED),
    ],
)
def test_a_version_that_went_is_not_yet_the_objects_end(
    name: str, version_id: str | None, deletion_type: str | None, change: Change
) -> None:
    told = Told(key="k", name=name, version_id=version_id)
    assert only(direct(told)).change is change
    if deletion_type is not None:
        assert only(in_eventbridge(told, deletion_type=deletion_type)).change is change


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET}),
        direct(Told(key="a", name="ObjectTagging:Put")),
        direct(Told(key="a", name="s3:LifecycleTransition")),
        direct(Told(key="photos/2024/", size=0)),
        in_eventbridge(Told(key="a")).replace("Object Created", "Object Tags Added"),
    ],
)
def test_what_changes_no_content_is_ignored_by_name(body: str) -> None:
    reading = read_message(body)
    assert (reading.notices, reading.refused) == ((), ())
    assert len(reading.ignored) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not JSON"),
        ("\ud800", "not JSON"),
        ("[]", "a JSON list"),
        ('{"hello": 1}', "no known kind; its fields: hello"),
        ('{"Records": [3]}', "cannot be read"),
        ('{"Records": [{"eventSource": "aws:sqs"}]}', "about aws:sqs, not an S3 object"),
        (in_sns("{}"), "no known kind"),
        (in_sns(in_sns(in_sns(direct(Told(key="a"))))), "no known kind"),
        (direct(Told(key="a", sequencer=None)), "no sequencer"),
        (direct(Told(key="a", sequencer="12G")), "not 1 to 64 hexadecimal digits"),
        (direct(Told(key="a", name="ObjectEaten:Whole")), "eventName is not known"),
        (direct(Told(key="k" * 1025)), "1025 bytes; S3's limit is 1024"),
        (direct(Told(key="a\0b")), "NUL"),
        (direct(Told(key="a", size=-1)), "size is negative"),
        (direct(Told(key="a")).replace('"key": "a"', '"key": "%ff"'), "can't decode byte 0xff"),
        (in_eventbridge(Told(key="a")).replace("Object Created", "Object Sold"), "detail-type"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(body: str, reason: str) -> None:
    reading = read_message(body)
    assert (reading.notices, reading.ignored) == ((), ())
    assert reason in reading.refused[0]


def test_one_bad_record_does_not_take_the_others_with_it() -> None:
    body = json.dumps({"Records": [record(Told(key="a")), {}, record(Told(key="b"))]})
    reading = read_message(body)
    assert [notice.key for notice in reading.notices] == ["a", "b"]
    assert len(reading.refused) == 1


@given(JSON | st.builds(lambda inner: {"Records": [inner]}, JSON))
def test_no_json_makes_the_reader_raise(anything: object) -> None:
    assert read_message(json.dumps(anything)).notices == ()
    read_message(in_sns(json.dumps(anything)))


@given(data=st.data())
def test_an_event_with_one_field_replaced_is_still_read_or_refused(data: st.DataObject) -> None:
    raw = json.loads(direct(replace(Told(key="a"), version_id="v")))
    place = raw["Records"][0]
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(
            st.sampled_from([v for v in place.values() if isinstance(v, dict)] or [place])
        )
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    reading = read_message(json.dumps(raw))
    assert len(reading.notices) + len(reading.ignored) + len(reading.refused) == 1
