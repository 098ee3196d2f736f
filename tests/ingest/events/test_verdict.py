"""Any delivery order, with any repetition, ends where the newest change does."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ingest.events.verdict import Known, Verdict, Wanted, decide, identity_of


def entered(known: Known, wanted: Wanted) -> Known:
    """What the object table does with a verdict."""
    verdict = decide(known, wanted)
    if verdict in (Verdict.STALE, Verdict.DUPLICATE):
        return known
    kept = replace(
        known,
        sequencer=wanted.sequencer,
        identity=wanted.identity,
        pipeline_version=wanted.pipeline_version,
    )
    if verdict is Verdict.SAME:
        return kept
    file_id = None if wanted.identity is None else f"{wanted.identity}@{wanted.sequencer}"
    return replace(kept, file_id=file_id, digest=wanted.digest, is_alive=file_id is not None)


CONTENTS = st.sampled_from([None, "a", "b", "c"])


@given(contents=st.lists(CONTENTS, min_size=1, max_size=6), data=st.data())
def test_the_newest_change_wins_whatever_the_order(
    contents: list[str | None], data: st.DataObject
) -> None:
    changes = [
        Wanted(sequencer=f"{n:02X}", identity=content, pipeline_version=1, digest=content)
        for n, content in enumerate(contents, start=1)
    ]
    known = Known()
    for change in data.draw(st.permutations(changes * 3)):
        known = entered(known, change)
    last = changes[-1]
    assert (known.sequencer, known.identity) == (last.sequencer, last.identity)
    assert known.is_alive == (last.identity is not None)
    assert known.digest == last.digest or not known.is_alive


OLD = Wanted(sequencer="A1", identity="x", pipeline_version=1, digest="d")
ALIVE = entered(Known(), OLD)


def test_the_same_bytes_as_another_version_are_not_read_again() -> None:
    newer = Wanted(sequencer="A2", identity="y", pipeline_version=1, digest="d")
    assert decide(ALIVE, newer) is Verdict.SAME


def test_a_failed_file_is_read_again_when_it_is_put_again() -> None:
    failed = replace(ALIVE, is_alive=False)
    assert decide(failed, OLD) is Verdict.DUPLICATE
    assert decide(failed, replace(OLD, sequencer="A2")) is Verdict.REPLACE


def test_a_new_pipeline_reads_a_repeated_event_anew() -> None:
    assert decide(ALIVE, replace(OLD, identity="x2", pipeline_version=2)) is Verdict.REPLACE


def test_what_was_given_up_is_tried_again_but_never_replaces_what_succeeded() -> None:
    given_up = replace(OLD, identity="failed", pipeline_version=None)
    assert decide(entered(Known(), given_up), OLD) is Verdict.REPLACE
    assert decide(ALIVE, given_up) is Verdict.DUPLICATE


def test_without_versioning_the_etag_is_the_identity() -> None:
    def named(version_id: str | None, etag: str) -> str:
        return identity_of("b", "k", version_id=version_id, etag=etag, pipeline_version=1)

    assert named("null", "1") != named("null", "2")
    assert named("null", "1") == named(None, "1")
    assert named("v", "1") == named("v", "2") != named("w", "1")
