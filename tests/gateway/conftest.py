"""Starts gateways for tests and stops them afterwards."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.gateway.fakes import Running, Start, make_parts, running


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(engine, policy, library, …)` gives a running gateway."""
    with ExitStack() as stack:

        def start_one(*args: object, **kwargs: object) -> Running:
            return stack.enter_context(running(make_parts(*args, **kwargs)))  # type: ignore[arg-type]

        yield start_one


@pytest.fixture
def golden_dir() -> Path:
    return Path(__file__).parent / "golden"
