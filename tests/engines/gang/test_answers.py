"""Several answers to one prompt: read once, branched off, ended once."""

from dataclasses import replace

import pytest

from engines.api import (
    AnswerEndEvent,
    EngineLost,
    EngineRefused,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    TokenEvent,
)
from engines.gang.messages import NO_TOKEN, Fork, Prefill
from tests.engines.gang.play import LIMITS, Play, answer, ask


def three(num_prompt: int = 20, new: int = 3) -> GenerateRequest:
    return replace(ask(num_prompt, new=new), n=3)


def events_of(play: Play) -> list[Event]:
    return [event for events in play.sent.values() for event in events]


def test_the_prompt_is_read_once_and_every_answer_ends_before_the_finish() -> None:
    play = Play()
    play.submit(three())
    play.run()
    assert sum(step.stop - step.start for step in play.steps if isinstance(step, Prefill)) == 20
    assert [len(s.branches) for s in play.steps if isinstance(s, Fork)] == [2]
    events = events_of(play)
    tokens = [event.index for event in events if isinstance(event, TokenEvent)]
    assert sorted(tokens) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    ends = [event for event in events if isinstance(event, AnswerEndEvent)]
    assert sorted(end.index for end in ends) == [0, 1, 2]
    assert {(end.reason, end.completion_tokens) for end in ends} == {(FinishReason.LENGTH, 3)}
    [finish] = [event for event in events if isinstance(event, FinishEvent)]
    assert finish.completion_tokens == 9
    assert play.scheduler.load().kv_tokens == 0


def test_seeds_count_up_from_the_request_s() -> None:
    play = Play()
    play.submit(replace(three(), sampling=replace(three().sampling, seed=5)))
    play.run()
    [fork] = [step for step in play.steps if isinstance(step, Fork)]
    assert [branch.seed for branch in fork.branches] == [6, 7]


@pytest.mark.parametrize("first", [7, 99])
def test_a_leader_that_ends_at_once_still_makes_its_branches(first: int) -> None:
    play = Play()
    play.submit(three(5, new=1 if first == 7 else 3))
    turn = play.step(first)
    assert isinstance(turn.step, Prefill)
    play.run()
    assert len([e for e in events_of(play) if isinstance(e, AnswerEndEvent)]) == 3
    assert [isinstance(s, Fork) for s in play.steps[:2]] == [False, True]
    assert play.scheduler.load().running == 0


@pytest.mark.parametrize("steps_before", range(1, 7))
def test_a_gang_may_die_at_any_step_and_every_answer_is_complete(steps_before: int) -> None:
    play = Play()
    play.submit(three())
    for _ in range(steps_before):
        play.step()
    play.scheduler.lose_gang()
    play.run()
    tokens = [event.index for event in events_of(play) if isinstance(event, TokenEvent)]
    assert sorted(tokens) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert isinstance(events_of(play)[-1], FinishEvent) or play.ends()
    assert len([e for e in events_of(play) if isinstance(e, FinishEvent)]) == 1


def test_more_answers_than_run_at_once_or_than_kv_holds_are_refused_with_numbers() -> None:
    play = Play()
    with pytest.raises(EngineRefused, match="from 1 to 3, not 4"):
        play.submit(replace(three(), n=4))
    play = Play(replace(LIMITS, kv_budget_tokens=400))
    with pytest.raises(EngineRefused, match="2 answers to this prompt would"):
        play.submit(three(num_prompt=60))
    play.submit(replace(three(num_prompt=60), n=2))


def test_branches_hold_their_kv_from_the_moment_the_prompt_is_read() -> None:
    play = Play()
    play.submit(three())
    play.step()
    each = LIMITS.kv_tokens(three())
    assert play.scheduler.load().kv_tokens == 3 * each


def test_a_request_that_leaves_takes_its_branches_with_it() -> None:
    play = Play()
    first = play.submit(three())
    for _ in range(4):
        play.step()
    assert [play.scheduler.leave(id_) for id_ in range(first, first + 3)] == [True] * 3
    assert play.scheduler.next_turn(play.now_s) is None


def test_an_answer_whose_grammar_is_stuck_ends_the_request_with_an_error() -> None:
    play = Play()
    leader = play.submit(three())
    play.step()
    play.step()
    step = play.turn().step
    done = answer(step, NO_TOKEN)
    deliveries = play.scheduler.apply(step, done, play.now_s)
    assert {type(delivery.error) for delivery in deliveries} == {EngineLost}
    assert all(delivery.ended and not delivery.events for delivery in deliveries)
    for member in range(leader, leader + 3):
        play.scheduler.leave(member)
        play.scheduler.closed(member)
    assert play.scheduler.next_turn(play.now_s) is None
    assert play.scheduler.load().kv_tokens == 0
