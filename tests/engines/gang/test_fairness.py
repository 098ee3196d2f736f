"""Who reads, who speaks and who waits: the scheduler alone, played by hand."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.api import EngineBusy, FinishEvent, RequestExpired, TokenEvent
from engines.gang.limits import SERVICE_TIERS
from engines.gang.messages import Ask, Decode, Encode, Prefill, Step
from engines.gang.scheduler import AGING_S
from tests.engines.gang.play import LIMITS, Play, ask

ROOMY = replace(LIMITS, kv_budget_tokens=100_000, window_tokens=50_000, max_queued=1_000)


def num_read(step: Step) -> int:
    return step.stop - step.start if isinstance(step, Prefill) else 0


@settings(max_examples=40, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    streams=st.integers(1, 3),
    chunk=st.integers(8, 64),
)
def test_between_two_tokens_of_a_stream_lies_at_most_one_chunk_within_the_budget(
    prompts: list[int], streams: int, chunk: int
) -> None:
    play = Play(replace(ROOMY, prefill_chunk_tokens=chunk, max_running=20))
    speaking = {play.submit(ask(4, new=1_000)) for _ in range(streams)}
    while not all(id_ in play.sent for id_ in speaking):
        play.step()
    for num_prompt in prompts:
        play.submit(ask(num_prompt, new=2))
    play.step()
    since: list[Step] = []
    for _ in range(60):
        step = play.step().step
        if not isinstance(step, Decode):
            since.append(step)
            continue
        assert speaking <= set(step.sequence_ids)
        assert len(since) <= 1
        read = sum(map(num_read, since))
        assert read + len(speaking) <= max(chunk, LIMITS.least_chunk_tokens + len(speaking))
        since.clear()


def test_beside_a_stream_a_hierarchical_prompt_is_encoded_in_smaller_steps() -> None:
    play = Play(ROOMY)
    play.submit(ask(4, new=50))
    play.step()
    play.submit(ask(200, question_start=190, new=1))
    for _ in range(20):
        play.step()
    encoded = [step for step in play.steps if isinstance(step, Encode)]
    assert encoded
    assert all(step.last - step.first == 1 for step in encoded)


arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 10.0), st.sampled_from(SERVICE_TIERS), st.integers(1, 60), st.integers(1, 6)
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=40, deadline=None)
@given(arrivals=arrivals, max_running=st.integers(1, 4))
def test_nobody_waits_for_those_who_came_much_later(
    arrivals: list[tuple[float, str, int, int]], max_running: int
) -> None:
    """Under more work than the gang can do, whatever the classes: a request is never begun after
    one that came two classes' aging later, so flex cannot starve."""
    play = Play(replace(ROOMY, max_running=max_running), step_s=2.0)
    arrived: dict[int, float] = {}
    begun: list[int] = []
    due_s = play.now_s
    for pause_s, tier, num_prompt, new in arrivals:
        due_s += pause_s
        while play.now_s < due_s:
            turn = play.scheduler.next_turn(play.now_s)
            if turn is None:
                play.now_s = due_s
                break
            begun += [message.sequence_id for message in turn.opens]
            play.take(turn.step)
        arrived[play.submit(ask(num_prompt, new=new, tier=tier))] = play.now_s
    while turn := play.scheduler.next_turn(play.now_s):
        begun += [message.sequence_id for message in turn.opens]
        play.take(turn.step)
    assert sorted(begun) == sorted(arrived) == sorted(play.ends())
    for position, id_ in enumerate(begun):
        for earlier in begun[:position]:
            assert arrived[earlier] <= arrived[id_] + 2 * AGING_S


def test_a_flex_stream_pauses_for_a_priority_request_and_resumes_from_its_kv() -> None:
    play = Play(replace(LIMITS, max_running=1))
    flex = play.submit(ask(8, new=6, tier="flex"))
    play.step()
    play.step()
    urgent = play.submit(ask(4, new=3, tier="priority"))
    play.run()
    assert play.ends() == [flex, urgent]
    order = [
        (type(step), step.sequence_ids[0] if isinstance(step, Decode) else step.sequence_id)
        for step in play.steps
    ]
    assert order == [
        (Prefill, flex),
        (Decode, flex),
        (Prefill, urgent),
        *[(Decode, urgent)] * 2,
        *[(Decode, flex)] * 4,
    ]


def test_an_equal_does_not_pause_a_stream() -> None:
    play = Play(replace(LIMITS, max_running=1))
    first, second = play.submit(ask(8, new=4)), play.submit(ask(8, new=4))
    play.run()
    readers = [step.sequence_id for step in play.steps if isinstance(step, Prefill)]
    assert readers == [first, second]
    assert play.ends() == [first, second]


def test_a_passed_deadline_is_told_even_for_a_request_that_nobody_listens_to() -> None:
    play = Play()
    late = play.submit(ask(8, deadline_s=play.now_s + 5))
    play.submit(ask(8))
    assert play.scheduler.expired(play.now_s) == []
    assert play.scheduler.expired(play.now_s + 5) == [late]
    with pytest.raises(RequestExpired):
        play.scheduler.submit(ask(8, deadline_s=play.now_s), play.now_s)


def test_what_has_ended_counts_until_the_ranks_have_let_go_of_it() -> None:
    play = Play()
    play.closes = False
    first = play.submit(ask(140, new=1))
    held = LIMITS.kv_tokens(ask(140, new=1))
    while first not in play.ends():
        play.step()
    play.submit(ask(140, new=1))
    load = play.scheduler.load()
    assert (load.running, load.queued, load.kv_tokens) == (1, 1, held)
    assert play.scheduler.next_turn(play.now_s) is None
    play.scheduler.closed(first)
    assert play.scheduler.load().kv_tokens == 0
    assert play.step().opens


def test_a_request_that_left_while_it_read_counts_until_it_is_closed_as_well() -> None:
    play = Play()
    id_ = play.submit(ask(20))
    play.step()
    assert play.scheduler.leave(id_)
    assert play.scheduler.load().running == 1
    assert not play.scheduler.leave(id_)
    play.scheduler.closed(id_)
    assert (play.scheduler.load().running, play.scheduler.load().kv_tokens) == (0, 0)


def test_a_lost_gang_holds_nothing() -> None:
    play = Play()
    play.closes = False
    play.submit(ask(4, new=1))
    play.step()
    play.scheduler.lose_gang()
    assert play.scheduler.load().kv_tokens == 0


def test_a_busy_engine_counts_what_must_end_before_there_is_kv() -> None:
    play = Play(replace(LIMITS, max_queued=1))
    play.submit(ask(150, new=40))
    while not isinstance(play.step().step, Decode):
        pass
    play.submit(ask(150, new=40))
    with pytest.raises(EngineBusy) as busy:
        play.submit(ask(150, new=40))
    # 38 tokens are left, at 0.8 x 50 ms (the first guess) + 0.2 x 10 ms (measured).
    assert busy.value.retry_after_s == pytest.approx(38 * 0.042)


def test_a_chunk_that_was_too_large_is_halved_down_to_what_cannot_be_shared() -> None:
    play = Play(replace(ROOMY, prefill_chunk_tokens=32))
    id_ = play.submit(ask(64, new=1))
    sizes = []
    for _ in range(3):
        turn = play.turn()
        sizes.append(num_read(turn.step))
        assert play.scheduler.too_large(turn.step) == []
    assert sizes == [32, 16, 8]
    turn = play.turn()
    assert turn.step == Prefill(step_id=4, sequence_id=id_, start=0, stop=4)
    assert play.scheduler.too_large(turn.step) == [id_]
    assert play.scheduler.load().running == 1
    play.scheduler.closed(id_)
    assert play.scheduler.next_turn(play.now_s) is None


def test_a_smaller_chunk_is_only_for_the_request_that_needs_it_and_outlives_the_gang() -> None:
    play = Play(replace(ROOMY, prefill_chunk_tokens=32))
    play.submit(ask(64, new=1))
    play.scheduler.too_large(play.turn().step)
    play.step()
    play.scheduler.lose_gang()
    other = play.submit(ask(64, new=1))
    play.run()
    by_owner = {s.sequence_id: num_read(s) for s in play.steps[1:] if isinstance(s, Prefill)}
    assert by_owner == {other - 1: 16, other: 32}


def test_a_decode_batch_that_was_too_large_is_halved_and_takes_turns() -> None:
    play = Play(replace(ROOMY, max_running=4))
    ids = [play.submit(ask(4, new=9)) for _ in range(4)]
    while not isinstance((turn := play.turn()).step, Decode) or len(play.sent) < 4:
        play.take(turn.step)
    assert play.scheduler.too_large(turn.step) == []
    batches = [play.step().step for _ in range(4)]
    assert all(isinstance(step, Decode) and len(step.sequence_ids) == 2 for step in batches)
    assert {id_ for step in batches[:2] if isinstance(step, Decode) for id_ in step.sequence_ids}
    play.run()
    for id_ in ids:
        assert sum(isinstance(event, TokenEvent) for event in play.sent[id_]) == 9


@pytest.mark.parametrize("kind", [Encode, Ask])
def test_a_step_that_cannot_be_smaller_ends_its_request(kind: type[Step]) -> None:
    play = Play()
    id_ = play.submit(ask(44, question_start=42, new=1))
    while not isinstance((turn := play.turn()).step, kind):
        play.take(turn.step)
    assert play.scheduler.too_large(turn.step) == [id_]


def test_every_stream_ends_however_often_memory_is_short() -> None:
    play = Play(replace(ROOMY, prefill_chunk_tokens=32, max_running=4))
    ids = [play.submit(ask(40 + i, new=5)) for i in range(4)]
    for number in range(200):
        if (turn := play.scheduler.next_turn(play.now_s)) is None:
            break
        is_small = num_read(turn.step) in range(1, 9) or (
            isinstance(turn.step, Decode) and len(turn.step.sequence_ids) == 1
        )
        if number % 3 == 0 and not is_small:
            assert play.scheduler.too_large(turn.step) == []
        else:
            play.take(turn.step)
    for id_ in ids:
        assert isinstance(play.sent[id_][-1], FinishEvent)
        assert sum(isinstance(event, TokenEvent) for event in play.sent[id_]) == 5
