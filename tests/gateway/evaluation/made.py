"""Results made up from shares of right answers, for what is computed from them."""

import math
from collections.abc import Mapping
from dataclasses import replace

from gateway.evaluation.journal import Outcome, Record
from gateway.evaluation.needles import Task
from gateway.evaluation.plan import Arm, EvalPlan
from gateway.evaluation.results import Result, summarize

SECONDS = {Arm.FULL: 5e-7, Arm.HIERARCHICAL: 1e-3, Arm.RETRIEVAL: 0.6, Arm.AUTO: 1.0}
"""Times length squared, times length, and as they are."""


def seconds(arm: Arm, length: int) -> float:
    power = {Arm.FULL: 2.0, Arm.HIERARCHICAL: 1.0}.get(arm, 0.0)
    return SECONDS[arm] * math.pow(length, power)


def made_result(
    rights: Mapping[tuple[Arm, int], int | None],
    samples: int,
    haystack: str = "made up",
    answer: str = "",
) -> Result:
    """`rights` counts the right ones of `samples` answers; None: every prompt was refused."""
    plan = EvalPlan(
        model="tiny <&> mighty",
        seed=0,
        lengths=tuple(sorted({length for _, length in rights})),
        num_depths=1,
        samples=samples,
        tasks=(Task.SINGLE,),
        arms=tuple(dict.fromkeys(arm for arm, _ in rights)),
        max_tokens=32,
        chunk_tokens=256,
        read_tokens=None,
        haystack=haystack,
        haystack_digest="0",
    )
    records = [
        replace(record(arm, length, number, right), answer=answer)
        for (arm, length), right in rights.items()
        for number in range(samples)
    ]
    return summarize(plan, records)


def record(arm: Arm, length: int, number: int, right: int | None) -> Record:
    is_right = right is not None and number < right
    is_search = arm is Arm.RETRIEVAL
    return Record(
        task=Task.SINGLE,
        length=length,
        depth=0,
        number=number,
        arm=arm,
        outcome=Outcome.REFUSED if right is None else Outcome.ANSWERED,
        wanted=("123456",),
        said=int(is_right),
        prompt_tokens=length,
        billed_tokens=500 if is_search else length,
        answer_tokens=10,
        tokens_read=500 if is_search else length,
        evidence=(0.6 if is_right else 0.15) if is_search else None,
        total_s=seconds(arm, length),
    )
