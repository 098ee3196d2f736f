"""A minute of tests.bench.soak with far more that goes wrong: nothing leaks, hangs or miscounts."""

from pathlib import Path

import pytest

from tests.bench.soak import soak
from tests.bench.soaking.course import Plan

PLAN = Plan(
    minutes=0.25,
    rate=8.0,
    disconnects=0.2,
    faults=0.1,
    rest_s=2.0,
    with_worker=False,
    fills=False,
)


@pytest.mark.timeout(120)
def test_a_gateway_under_mixed_load_and_faults_loses_and_keeps_nothing(tmp_path: Path) -> None:
    report = soak(PLAN, tmp_path)
    assert report.disconnects > 10
    assert report.upstream_faults > 3
    assert report.answered > 50
    assert report.is_clean, report
