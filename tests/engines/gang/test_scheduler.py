from dataclasses import replace
from typing import TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import (
    AttendedEvent,
    EngineBusy,
    FinishEvent,
    FinishReason,
    ProgressEvent,
    PromptTooLong,
    ReadTimes,
    RequestExpired,
    TokenEvent,
)
from engines.gang.messages import (
    Ask,
    Decode,
    Encode,
    Prefill,
    Step,
    StepDone,
    unpack_ids,
)
from engines.gang.scheduler import AGING_S
from engines.gang.sequence import OutOfStep
from tests.engines.gang.play import LIMITS, Play, ask


def test_a_prompt_is_read_in_chunks_and_then_decoded() -> None:
    play = Play()
    id_ = play.submit(ask(20))
    play.run()
    assert play.steps == [
        Prefill(step_id=1, sequence_id=id_, start=0, stop=8),
        Prefill(step_id=2, sequence_id=id_, start=8, stop=16),
        Prefill(step_id=3, sequence_id=id_, start=16, stop=20),
        Decode(step_id=4, sequence_ids=[id_]),
        Decode(step_id=5, sequence_ids=[id_]),
    ]
    events = play.sent[id_]
    assert events[:4] == [
        ProgressEvent(8, 20),
        ProgressEvent(16, 20),
        ProgressEvent(20, 20),
        TokenEvent(7),
    ]
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.completion_tokens) == (FinishReason.LENGTH, 3)


def test_a_sampled_request_is_told_how_long_its_chunks_took() -> None:
    play = Play()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
    id_ = play.submit(replace(ask(12), traceparent=f"00-{trace}-01"))
    other = play.submit(replace(ask(12), traceparent=f"00-{trace}-00"))
    play.run()
    assert play.sent[id_][:2] == [
        ProgressEvent(8, 12, ReadTimes(0.01, (0.006, 0.004))),
        ProgressEvent(12, 12, ReadTimes(0.01, (0.006, 0.004))),
    ]
    progress = [one for one in play.sent[other] if isinstance(one, ProgressEvent)]
    assert [one.times for one in progress] == [None] * len(progress)


def test_a_stop_id_ends_the_answer_and_is_not_sent() -> None:
    play = Play()
    id_ = play.submit(ask(4))
    play.step()
    play.step(token=99)
    finish = play.sent[id_][-1]
    assert isinstance(finish, FinishEvent)
    assert (finish.reason, finish.completion_tokens) == (FinishReason.STOP, 1)
    assert play.scheduler.next_turn(play.now_s) is None


def test_a_hierarchical_prompt_is_encoded_then_asked_and_its_shortlist_read() -> None:
    play = Play()
    id_ = play.submit(ask(44, question_start=42, new=1))
    play.run()
    assert play.steps == [
        Encode(step_id=1, sequence_id=id_, first=0, last=2),
        Encode(step_id=2, sequence_id=id_, first=2, last=4),
        Encode(step_id=3, sequence_id=id_, first=4, last=5),
        Ask(step_id=4, sequence_id=id_),
        # Anchor 2, one span of 8, question 2.
        Prefill(step_id=5, sequence_id=id_, start=0, stop=8),
        Prefill(step_id=6, sequence_id=id_, start=8, stop=12),
    ]
    kinds = [type(event) for event in play.sent[id_]]
    assert kinds == [*[ProgressEvent] * 4, AttendedEvent, TokenEvent, FinishEvent]


def test_a_running_stream_gets_every_other_turn_while_others_read() -> None:
    play = Play()
    first = play.submit(ask(4, new=50))
    play.step()
    play.submit(ask(64))
    for _ in range(12):
        play.step()
    kinds = [type(step) for step in play.steps[1:]]
    assert kinds == [Decode, Prefill] * 6 or kinds == [Prefill, Decode] * 6
    assert len([e for e in play.sent[first] if isinstance(e, TokenEvent)]) == 7


def test_running_streams_share_one_decode_step() -> None:
    play = Play()
    ids = [play.submit(ask(4, new=9)) for _ in range(3)]
    while not isinstance(play.step().step, Decode) or len(play.sent) < 3:
        pass
    decode = play.step().step
    assert isinstance(decode, Decode)
    assert decode.sequence_ids == ids


def test_a_higher_class_reads_first_and_preempts_at_a_chunk_boundary() -> None:
    play = Play()
    flex = play.submit(ask(32, tier="flex", new=1))
    play.step()
    urgent = play.submit(ask(16, tier="priority", new=1))
    play.run()
    order = [step.sequence_id for step in play.steps if isinstance(step, Prefill)]
    assert order == [flex, urgent, urgent, flex, flex, flex]


def test_a_flex_request_that_has_waited_goes_before_a_later_default_one() -> None:
    play = Play()
    play.submit(ask(8, new=1))
    flex = play.submit(ask(8, tier="flex", new=1))
    play.now_s += AGING_S + 1
    play.submit(ask(8, new=1))
    play.run()
    order = [step.sequence_id for step in play.steps if isinstance(step, Prefill)]
    assert order == [flex - 1, flex, flex + 1]


def test_kv_that_is_taken_holds_the_next_request_back_until_it_is_free() -> None:
    play = Play()
    first = play.submit(ask(140, new=2))
    second = play.submit(ask(140, new=2))
    play.step()
    assert (play.scheduler.load().running, play.scheduler.load().queued) == (1, 1)
    play.run()
    opened = [step.sequence_id for step in play.steps if isinstance(step, Prefill)]
    assert opened == [first] * 18 + [second] * 18


def test_a_small_request_does_not_overtake_a_queued_one_that_does_not_fit() -> None:
    play = Play()
    play.submit(ask(140, new=2))
    play.step()
    large = play.submit(ask(140, new=2))
    small = play.submit(ask(8, new=2))
    play.run()
    order = [step.sequence_id for step in play.steps if isinstance(step, Prefill)]
    assert order.index(large) < order.index(small)


def test_a_full_queue_says_when_to_come_back_from_the_measured_rate() -> None:
    play = Play()
    play.submit(ask(8, new=1))
    play.step()
    for _ in range(LIMITS.max_queued):
        play.submit(ask(150))
    with pytest.raises(EngineBusy) as busy:
        play.submit(ask(8))
    assert busy.value.queued == 4
    rate = 0.8 * 1000 + 0.2 * 8 / 0.01
    assert busy.value.retry_after_s == pytest.approx(max(1.0, 600 / rate))


def test_what_can_never_run_is_refused_with_its_numbers() -> None:
    play = Play()
    with pytest.raises(PromptTooLong) as too_long:
        play.submit(ask(199, new=2))
    assert (too_long.value.num_tokens, too_long.value.limit) == (201, 200)
    with pytest.raises(PromptTooLong):
        play.submit(ask(400, new=2, question_start=390))
    with pytest.raises(RequestExpired):
        play.submit(ask(4, deadline_s=play.now_s))


def test_after_a_lost_gang_the_answer_goes_on_behind_what_was_sent() -> None:
    play = Play()
    id_ = play.submit(ask(12, new=4))
    for token in (1, 2, 3):
        play.step(token)
    assert play.scheduler.lose_gang() == []
    turn = play.step(4)
    assert unpack_ids(turn.opens[0].replay_ids).tolist() == [2, 3]
    play.run()
    assert play.steps[3:5] == [
        Prefill(step_id=4, sequence_id=id_, start=0, stop=8),
        Prefill(step_id=5, sequence_id=id_, start=8, stop=12),
    ]
    assert play.steps[5:7] == [
        Prefill(step_id=6, sequence_id=id_, start=12, stop=14),
        Decode(step_id=7, sequence_ids=[id_]),
    ]
    tokens = [event for event in play.sent[id_] if isinstance(event, TokenEvent)]
    assert len(tokens) == 4
    progress = [event for event in play.sent[id_] if isinstance(event, ProgressEvent)]
    assert progress == [ProgressEvent(8, 12), ProgressEvent(12, 12)]


def test_after_a_lost_gang_the_shortlist_is_read_with_the_tokens_that_were_sent() -> None:
    play = Play()
    id_ = play.submit(ask(12, question_start=10, new=4))
    while not any(isinstance(event, TokenEvent) for event in play.sent.get(id_, [])):
        play.step()
    play.scheduler.lose_gang()
    before = len(play.steps)
    play.run()
    prefills = [step for step in play.steps[before:] if isinstance(step, Prefill)]
    # Anchor 2, one span of 8, question 2, one token.
    assert [(step.start, step.stop) for step in prefills] == [(0, 8), (8, 12), (12, 13)]


def test_after_a_lost_gang_a_prompt_is_cut_where_it_was_cut_before() -> None:
    """Beside streams chunks are smaller; the next gang finds none, and reads in the same steps."""
    play = Play(replace(LIMITS, prefill_chunk_tokens=32, kv_budget_tokens=4000))
    streams = [play.submit(ask(4, new=90)) for _ in range(2)]
    while not all(id_ in play.sent for id_ in streams):
        play.step()
    id_ = play.submit(ask(100, new=9))
    while id_ not in play.sent or not isinstance(play.sent[id_][-1], TokenEvent):
        play.step()
    first = [step.stop for step in play.steps if is_reading(step, id_)]
    assert first == [28, 56, 84, 100]
    play.scheduler.lose_gang()
    for stream in streams:
        play.scheduler.leave(stream)
    before = len(play.steps)
    play.run()
    again = [step.stop for step in play.steps[before:] if is_reading(step, id_)]
    assert again[:-1] == first
    assert again[-1] > 100


def is_reading(step: Step, id_: int) -> TypeGuard[Prefill]:
    return isinstance(step, Prefill) and step.sequence_id == id_


def test_chosen_spans_are_told_once_even_when_the_question_is_asked_again() -> None:
    play = Play()
    id_ = play.submit(ask(12, question_start=10, new=4))
    while not any(isinstance(event, TokenEvent) for event in play.sent.get(id_, [])):
        play.step()
    play.scheduler.lose_gang()
    play.run()
    assert sum(isinstance(event, AttendedEvent) for event in play.sent[id_]) == 1


def test_a_request_under_three_gangs_that_died_in_a_row_is_given_up() -> None:
    play = Play()
    id_ = play.submit(ask(12))
    waiting = play.submit(ask(12))
    for _ in range(2):
        play.step()
        assert play.scheduler.lose_gang() == []
    play.step()
    assert play.scheduler.lose_gang() == [id_]
    assert play.step().opens[0].sequence_id == waiting


def test_how_many_deaths_are_too_many_is_a_setting() -> None:
    play = Play(replace(LIMITS, max_deaths=1))
    id_ = play.submit(ask(12))
    play.step()
    assert play.scheduler.lose_gang() == [id_]


def test_a_gang_that_brought_many_tokens_makes_earlier_deaths_count_no_longer() -> None:
    play = Play()
    play.submit(ask(4, new=100))
    for _ in range(2):
        play.step()
        play.scheduler.lose_gang()
    for _ in range(34):
        play.step()
    assert play.scheduler.lose_gang() == []
    play.step()
    assert play.scheduler.lose_gang() == []


def test_an_abort_that_nobody_asked_for_ends_the_gang() -> None:
    play = Play()
    id_ = play.submit(ask(12))
    turn = play.turn()
    aborted = StepDone(step_id=turn.step.step_id, rank=0, seconds=0.1, aborted=True)
    with pytest.raises(OutOfStep):
        play.scheduler.apply(turn.step, aborted, play.now_s)
    assert play.scheduler.leave(id_)
    assert play.scheduler.apply(turn.step, aborted, play.now_s) == []


def test_a_step_that_forgot_a_sequence_ends_the_gang() -> None:
    play = Play()
    play.submit(ask(4))
    turn = play.turn()
    with pytest.raises(OutOfStep):
        play.scheduler.apply(
            turn.step, StepDone(step_id=turn.step.step_id, rank=0, seconds=0.1), play.now_s
        )


@given(
    arrivals=st.lists(
        st.tuples(
            st.integers(1, 60),
            st.integers(1, 5),
            st.sampled_from(["priority", "default", "flex"]),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    deaths=st.sets(st.integers(0, 40), max_size=2),
)
def test_every_request_ends_exactly_once_with_all_its_tokens(
    arrivals: list[tuple[int, int, str, bool]], deaths: set[int]
) -> None:
    play = Play()
    wanted: dict[int, int] = {}
    for size, new, tier, is_hierarchical in arrivals:
        start = size // 2 if is_hierarchical else None
        wanted[play.submit(ask(size, new=new, tier=tier, question_start=start))] = new
    for turn in range(60):
        if turn in deaths:
            play.scheduler.lose_gang()
        if play.scheduler.load().running + play.scheduler.load().queued:
            play.step()
    play.run()
    for id_, new in wanted.items():
        events = play.sent[id_]
        assert sum(isinstance(event, TokenEvent) for event in events) == new
        assert [isinstance(event, FinishEvent) for event in events].index(True) == len(events) - 1
        progress = [event.done_tokens for event in events if isinstance(event, ProgressEvent)]
        assert progress == sorted(set(progress))
