"""`ringway calibrate`: thresholds for the policy from an evaluation; knows arguments and files."""

import argparse
from pathlib import Path

from gateway.cli.main import Refusal
from gateway.evaluation.calibration import (
    advise,
    min_evidence,
    money_of,
    outlook,
    seconds_of,
    table_of,
)
from gateway.evaluation.calibration_text import Told, as_text
from gateway.evaluation.plan import EvaluationError
from gateway.evaluation.results import load_result
from gateway.policy import load_policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="what `ringway eval --out` wrote")
    parser.add_argument("--min-accuracy", type=float, default=0.9, help="at every length")
    parser.add_argument(
        "--prices",
        type=Path,
        help="policy file whose `prices` say what a request costs (default: seconds are the cost)",
    )
    parser.add_argument(
        "--policy", type=Path, help="today's policy, to compare with (default: the one shipped)"
    )


def run(args: argparse.Namespace) -> int:
    """0 with thresholds to rely on, 1 when there is too little data for them."""
    if not 0 <= args.min_accuracy <= 1:
        raise Refusal("--min-accuracy must be between 0 and 1")
    try:
        result = load_result(args.folder)
        today = load_policy(args.policy)
        prices = load_policy(args.prices).prices if args.prices else None
    except (EvaluationError, ValueError) as error:
        raise Refusal(str(error)) from error
    table = table_of(result, money_of(prices) if prices else seconds_of)
    advice = advise(table, args.min_accuracy)
    if advice is None:
        raise Refusal(
            f"{args.folder} measured no set of routes over all its lengths: evaluate with "
            "--routes full,hierarchical,retrieval"
        )
    told = Told(
        advice=advice,
        today=outlook(table, today.auto),
        evidence=min_evidence(result.evidence, args.min_accuracy),
        num_judged=len(result.evidence),
        unit="units" if prices else "s",
        notes=result.notes,
    )
    print(as_text(told))
    return 1 if advice.vague else 0
