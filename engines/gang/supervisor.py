"""Owns the requests and keeps a gang alive for them; knows no torch, no HTTP and no tensors."""

import asyncio
import logging
import math
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from engines.api import (
    EngineBusy,
    EngineError,
    EngineInfo,
    EngineLoad,
    EngineLost,
    EngineStatus,
    Event,
    FinishEvent,
    GenerateRequest,
    RequestExpired,
    TokenizerFiles,
)
from engines.config import EngineConfig
from engines.gang.gang import Gang, GangLost, gathered
from engines.gang.launcher import Launcher
from engines.gang.limits import GangLimits
from engines.gang.link import Door
from engines.gang.meeting import is_loopback
from engines.gang.messages import Cancel, Close, Step
from engines.gang.order import RankOrder
from engines.gang.runner import StepTooLarge
from engines.gang.scheduler import Delivery, Scheduler, sequences_of
from engines.gang.segment_home import segment_home
from engines.gang.sequence import OutOfStep
from engines.grammar import Grammars

logger = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 300.0
RESTART_DELAY_S = 0.5
RESTART_DELAY_MAX_S = 15.0
FIRST_STARTS = 2
"""Tries before the first start counts as failed: a port offered for the ranks may be lost."""
MAX_FAILED_STARTS = 3
"""Starts in a row that may fail before waiting requests are failed and new ones turned away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorParts:
    """`kv_bytes_per_token` and `limits` describe the gang; `log` takes the ranks' output.

    Ranks dial in at `door_host`; without a `token` of its owner's choice one is made up, and then
    only ranks that the launcher starts can know it.
    """

    config: EngineConfig
    limits: GangLimits
    kv_bytes_per_token: int
    tokenizer: TokenizerFiles
    launcher: Launcher
    door_host: str = "127.0.0.1"
    door_port: int = 0
    token: str = ""
    log: Path | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not self.token and not is_loopback(self.door_host):
            raise ValueError(f"a token is needed to listen for ranks on {self.door_host}")


class Supervisor:
    """An Engine over one gang. `run` must be running for anything to be answered.

    A dead gang is replaced under the next epoch; its requests go on from their prompt and the
    tokens already sent, so a stream pauses and neither repeats nor loses a token.
    """

    def __init__(self, parts: SupervisorParts) -> None:
        self._parts = parts
        self._config = parts.config
        self._clock = parts.clock
        self._scheduler = Scheduler(parts.limits)
        self._grammars = Grammars(parts.tokenizer, parts.limits.vocab_size)
        self._outlets: dict[int, asyncio.Queue[Event | EngineError]] = {}
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        self._status = EngineStatus.STARTING
        self._epoch = 0
        self._failed_starts = 0
        self._starting_since_s = 0.0
        self._last_start_s = 0.0
        self._gang: Gang | None = None
        self._step: Step | None = None
        self._to_close: list[int] = []
        self._stopped = False

    async def info(self) -> EngineInfo:
        limits = self._parts.limits
        return EngineInfo(
            model=self._config.model_name,
            status=self._status,
            ranks=self._config.ranks,
            epoch=self._epoch,
            dtype=self._config.dtype,
            window_tokens=limits.window_tokens,
            context_tokens=limits.context_tokens,
            kv_bytes_per_token=self._parts.kv_bytes_per_token,
            kv_budget_tokens=limits.kv_budget_tokens,
            tokenizer_digest=self._parts.tokenizer.digest,
            load=self.load(),
        )

    def load(self) -> EngineLoad:
        return self._scheduler.load()

    async def tokenizer(self) -> TokenizerFiles:
        return self._parts.tokenizer

    async def wait_ready(self) -> None:
        """Return when a gang is up."""
        await self._ready.wait()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        if self._stopped or self._failed_starts >= MAX_FAILED_STARTS:
            raise EngineLost("the engine has no ranks and cannot start any")
        if request.grammar is not None:
            await asyncio.to_thread(self._grammars.check, request.grammar)
        sequence_id = self._submit(request)
        members = range(sequence_id, sequence_id + request.n)
        outlet: asyncio.Queue[Event | EngineError] = asyncio.Queue()
        self._outlets.update(dict.fromkeys(members, outlet))
        self._wake.set()
        try:
            while True:
                event = await self._next_event(outlet, request.deadline_s)
                yield event
                if isinstance(event, FinishEvent):
                    return
        finally:
            for member in members:
                self._let_go(member)

    async def run(self) -> None:
        """Keep a gang alive until cancelled. Raises EngineLost when the first cannot start."""
        parts = self._parts
        token = parts.token or secrets.token_hex(16)
        try:
            async with Door(token=token, host=parts.door_host, port=parts.door_port) as door:
                with segment_home(parts.config.segments) as segments:
                    self._config = replace(parts.config, segments=segments)
                    while True:
                        await self._live_one_epoch(door, token)
        finally:
            self._stopped = True
            self._fail_all("the engine is stopping")
            await parts.launcher.close()

    def _submit(self, request: GenerateRequest) -> int:
        now_s = self._clock()
        try:
            return self._scheduler.submit(request, now_s)
        except EngineBusy as busy:
            if self._status is EngineStatus.READY:
                raise
            start_s = max(0.0, self._starting_since_s + self._last_start_s - now_s)
            raise EngineBusy(
                queued=busy.queued, retry_after_s=busy.retry_after_s + start_s
            ) from None

    async def _live_one_epoch(self, door: Door, token: str) -> None:
        self._epoch += 1
        self._starting_since_s = self._clock()
        try:
            async with gathered(
                door,
                self._parts.launcher,
                self._orders(door, token),
                LOAD_TIMEOUT_S,
                self._on_closed,
            ) as gang:
                self._failed_starts = 0
                self._last_start_s = self._clock() - self._starting_since_s
                self._gang = gang
                self._set_status(EngineStatus.READY)
                await self._drive(gang)
        except GangLost as lost:
            logger.warning("gang lost", extra={"epoch": self._epoch, "cause": str(lost)})
            await self._recover(lost)
        finally:
            self._gang = None

    async def _drive(self, gang: Gang) -> None:
        """Turn after turn until cancelled. Raises GangLost."""
        while True:
            now_s = self._clock()
            for sequence_id in self._scheduler.expired(now_s):
                self._end(sequence_id, RequestExpired("the deadline passed before the finish"))
            turn = self._scheduler.next_turn(now_s)
            if turn is None:
                await self._idle(gang)
                continue
            for message in turn.opens:
                gang.send(message)
            await self._run(gang, turn.step)

    async def _idle(self, gang: Gang) -> None:
        """Wait for work, and make sure now and then that the ranks could do it."""
        half_s = self._config.step_timeout_s / 2
        self._wake.clear()
        try:
            async with asyncio.timeout(half_s):
                await self._wake.wait()
        except TimeoutError:
            await gang.check(half_s)

    async def _run(self, gang: Gang, step: Step) -> None:
        self._step = step
        try:
            done = await gang.run(step)
            self._step = None
            self._deliver(self._scheduler.apply(step, done, self._clock()))
        except StepTooLarge as error:
            self._step = None
            self._shrink(step, error)
            await gang.join(self._config.step_timeout_s)
        except OutOfStep as error:
            raise GangLost(str(error)) from error
        self._close_ended(gang)

    def _shrink(self, step: Step, error: StepTooLarge) -> None:
        logger.warning("step too large", extra={"step_id": step.step_id, "cause": str(error)})
        for sequence_id in self._scheduler.too_large(step):
            why = f"the ranks' memory does not suffice for the smallest step: {error}"
            self._outlets[sequence_id].put_nowait(EngineLost(why))
            self._to_close.append(sequence_id)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            for event in delivery.events:
                self._outlets[delivery.sequence_id].put_nowait(event)
            if delivery.error is not None:
                self._outlets[delivery.sequence_id].put_nowait(delivery.error)
            if delivery.ended:
                self._to_close.append(delivery.sequence_id)

    def _close_ended(self, gang: Gang) -> None:
        for sequence_id in self._to_close:
            gang.send(Close(sequence_id=sequence_id))
        self._to_close.clear()

    async def _recover(self, lost: GangLost) -> None:
        """Put every request back in line, and wait a little longer after every failed start."""
        was_up = self._gang is not None
        self._gang = None
        self._step = None
        self._to_close.clear()
        for sequence_id in self._scheduler.lose_gang():
            self._outlets[sequence_id].put_nowait(
                EngineLost(f"the ranks failed {self._config.max_deaths} times in a row: {lost}")
            )
        if was_up:
            self._set_status(EngineStatus.DEGRADED)
            return
        self._failed_starts += 1
        if self._status is EngineStatus.STARTING and self._failed_starts >= FIRST_STARTS:
            raise EngineLost(f"the ranks did not start: {lost}") from lost
        if self._failed_starts >= MAX_FAILED_STARTS:
            self._fail_all(f"the ranks do not start: {lost}")
        delay_s = RESTART_DELAY_S * 2 ** (self._failed_starts - 1)
        await asyncio.sleep(min(delay_s, RESTART_DELAY_MAX_S))

    async def _next_event(
        self, outlet: "asyncio.Queue[Event | EngineError]", deadline_s: float
    ) -> Event:
        left_s = None if math.isinf(deadline_s) else deadline_s - self._clock()
        try:
            async with asyncio.timeout(left_s):
                event = await outlet.get()
        except TimeoutError:
            raise RequestExpired("the deadline passed before the answer was finished") from None
        if isinstance(event, EngineError):
            raise event
        return event

    def _let_go(self, sequence_id: int) -> None:
        """Whatever the end, nothing of the request stays, here or on the ranks."""
        del self._outlets[sequence_id]
        self._leave(sequence_id)

    def _end(self, sequence_id: int, error: EngineError) -> None:
        """Free what the request holds now, not when its reader comes to hear of it."""
        self._outlets[sequence_id].put_nowait(error)
        self._leave(sequence_id)

    def _leave(self, sequence_id: int) -> None:
        if not self._scheduler.leave(sequence_id) or self._gang is None:
            return
        if self._step is None or sequence_id not in sequences_of(self._step):
            self._gang.send(Close(sequence_id=sequence_id))
            return
        self._to_close.append(sequence_id)
        self._gang.send(Cancel(sequence_id=sequence_id))

    def _on_closed(self, sequence_id: int) -> None:
        self._scheduler.closed(sequence_id)
        self._wake.set()

    def _fail_all(self, why: str) -> None:
        for sequence_id, outlet in self._outlets.items():
            self._scheduler.leave(sequence_id)
            outlet.put_nowait(EngineLost(why))

    def _set_status(self, status: EngineStatus) -> None:
        self._status = status
        if status is EngineStatus.READY:
            self._ready.set()
        else:
            self._ready.clear()

    def _orders(self, door: Door, token: str) -> list[RankOrder]:
        host, port = door.address
        return [
            RankOrder(
                supervisor_host=host,
                supervisor_port=port,
                token=token,
                rank=rank,
                local_rank=rank,
                epoch=self._epoch,
                config=self._config,
                log=self._parts.log,
            )
            for rank in range(self._config.ranks)
        ]
