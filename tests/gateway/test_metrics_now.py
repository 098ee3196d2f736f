"""What a scrape tells of upstreams and of what is open, over a real breaker and real requests."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from engines.api import (
    EngineLost,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    TextEvent,
)
from engines.fake import FakeEngine
from gateway.drain import Drain
from gateway.metrics_now import watch
from gateway.tenancy.accounts import Accounts
from gateway.tenancy.memory_limits import MemoryLimits
from gateway.tenancy.spending import MemorySpending
from gateway.upstreams.breaker import Circuit
from gateway.upstreams.fleet import Fleet
from gateway.upstreams.replica import Replica
from tests.gateway.upstreams.serving import heard, request

UPSTREAM = {"model": "m", "upstream": "10.0.0.1:8000/v1"}


class Server:
    """Fails, or answers at once."""

    def __init__(self) -> None:
        self.is_failing = True

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        if self.is_failing:
            raise EngineLost("boom")
        yield TextEvent("x")
        yield FinishEvent(
            reason=FinishReason.STOP,
            prompt_tokens=len(request.prompt_ids),
            cached_tokens=0,
            completion_tokens=1,
            queue_s=0.0,
            prefill_s=0.0,
            decode_s=0.0,
        )


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def watched(server: Server, clock: Clock) -> tuple[Fleet, CollectorRegistry, Drain]:
    replica = Replica("http://ann:secret@10.0.0.1:8000/v1/", server, clock)
    fleet = Fleet([replica], FakeEngine(), clock=clock)
    registry, drain = CollectorRegistry(), Drain()
    accounts = Accounts(MemoryLimits(clock=clock), MemorySpending(), clock=clock)
    watch(registry, drain=drain, accounts=accounts, models={"m": fleet})
    return fleet, registry, drain


def told(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    value: float | None = registry.get_sample_value(name, {**UPSTREAM, **labels})
    return value


def circuit(registry: CollectorRegistry) -> list[str]:
    """The states that are told with 1."""
    name = "ringway_upstream_circuit"
    return [one for one in Circuit if told(registry, name, state=one.value) == 1.0]


async def test_a_circuit_that_opens_and_closes_is_seen() -> None:
    server, clock = Server(), Clock()
    fleet, registry, _ = watched(server, clock)
    openings = "ringway_upstream_circuit_openings_total"
    assert circuit(registry) == [Circuit.CLOSED]
    for _ in range(3):
        with pytest.raises(EngineLost):
            await heard(fleet)
    assert circuit(registry) == [Circuit.OPEN]
    assert told(registry, openings) == 1.0
    clock.now_s += 1.0
    with pytest.raises(EngineLost):
        await heard(fleet)  # the try that opens it again
    server.is_failing = False
    clock.now_s += 2.0
    assert circuit(registry) == [Circuit.TRYING]
    await heard(fleet)
    assert circuit(registry) == [Circuit.CLOSED]
    assert told(registry, openings) == 2.0
    assert b"secret" not in generate_latest(registry)


async def test_what_is_in_flight_and_the_learned_deadline_are_told() -> None:
    server, clock = Server(), Clock()
    server.is_failing = False
    fleet, registry, drain = watched(server, clock)
    deadline = "ringway_upstream_first_byte_deadline_seconds"
    before_s = told(registry, deadline, prompt_tokens="100000")
    events = fleet.generate(request(20))
    drain.opened()
    await anext(events)
    assert told(registry, "ringway_upstream_requests") == 1.0
    assert registry.get_sample_value("ringway_open_requests") == 1.0
    await events.aclose()
    drain.closed()
    for num_tokens in (1000, 4000, 8000):
        fleet.replicas[0].pace.observe(num_tokens, num_tokens * 1e-2)
    after_s = told(registry, deadline, prompt_tokens="100000")
    assert before_s is not None
    assert after_s is not None
    assert after_s > before_s
    assert told(registry, "ringway_upstream_requests") == 0.0
    assert told(registry, "ringway_upstream_waiting_tokens") == 0.0
    for name in ("ringway_open_requests", "ringway_open_claims"):
        assert registry.get_sample_value(name) == 0.0
    for name in ("ringway_tasks", "process_resident_memory_bytes", "process_open_fds"):
        assert registry.get_sample_value(name)
