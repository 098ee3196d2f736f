"""A scheduler played by hand: requests in, steps answered, events collected; no ranks."""

from array import array

from engines.api import (
    Attention,
    Event,
    FinishEvent,
    GenerateRequest,
)
from engines.config import HierarchicalConfig
from engines.gang.limits import GangLimits
from engines.gang.messages import (
    Ask,
    Encode,
    Prefill,
    Sampled,
    Span,
    Step,
    StepDone,
)
from engines.gang.scheduler import Scheduler, Turn, sequences_of

LIMITS = GangLimits(
    ranks=2,
    vocab_size=100,
    window_tokens=200,
    kv_budget_tokens=400,
    prefill_chunk_tokens=8,
    max_running=3,
    max_queued=4,
    hierarchical=HierarchicalConfig(
        chunk_tokens=8, anchor_tokens=2, top_k=2, max_context_tokens=300
    ),
)


def ask(
    num_prompt: int,
    *,
    new: int = 3,
    tier: str = "default",
    question_start: int | None = None,
    deadline_s: float = float("inf"),
) -> GenerateRequest:
    return GenerateRequest(
        request_id="r",
        prompt_ids=array("i", [1] * num_prompt),
        max_new_tokens=new,
        attention=Attention.FULL if question_start is None else Attention.HIERARCHICAL,
        question_start=question_start or 0,
        stop_ids=(99,),
        service_tier=tier,
        deadline_s=deadline_s,
    )


def answer(step: Step, token: int = 7) -> StepDone:
    sampled = [Sampled(sequence_id=id_, token_id=token) for id_ in sequences_of(step)]
    return StepDone(
        step_id=step.step_id,
        rank=0,
        seconds=0.01,
        sampled=[] if isinstance(step, Encode) else sampled,
        spans=[Span(2, 10, 0.5)] if isinstance(step, Ask) else [],
        recall=0.8 if isinstance(step, Ask) else None,
        turns_s=[0.006, 0.004] if isinstance(step, Prefill) else [],
    )


class Play:
    """Runs a scheduler against an obedient gang and keeps what every request was sent.

    A step takes `step_s`; ranks let go of what has ended at once unless `closes` is false.
    """

    def __init__(self, limits: GangLimits = LIMITS, *, step_s: float = 0.01) -> None:
        self.scheduler = Scheduler(limits)
        self.now_s = 100.0
        self.step_s = step_s
        self.closes = True
        self.steps: list[Step] = []
        self.sent: dict[int, list[Event]] = {}

    def submit(self, request: GenerateRequest) -> int:
        return self.scheduler.submit(request, self.now_s)

    def turn(self) -> Turn:
        turn = self.scheduler.next_turn(self.now_s)
        assert turn is not None
        self.steps.append(turn.step)
        return turn

    def step(self, token: int = 7) -> Turn:
        turn = self.turn()
        self.take(turn.step, token)
        return turn

    def run(self) -> None:
        for _ in range(10_000):
            turn = self.scheduler.next_turn(self.now_s)
            if turn is None:
                return
            self.steps.append(turn.step)
            self.take(turn.step)
        raise AssertionError("the scheduler never runs dry")

    def ends(self) -> list[int]:
        """Requests that have finished, in that order."""
        return [id_ for id_, events in self.sent.items() if isinstance(events[-1], FinishEvent)]

    def take(self, step: Step, token: int = 7) -> None:
        """Answer a step."""
        self.now_s += self.step_s
        for delivery in self.scheduler.apply(step, answer(step, token), self.now_s):
            self.sent.setdefault(delivery.sequence_id, []).extend(delivery.events)
            if delivery.ended and self.closes:
                self.scheduler.closed(delivery.sequence_id)
