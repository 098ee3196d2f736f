"""Whatever a parser does, its file gets a cause and nothing else is hurt."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from ingest.api import PermanentError, TransientError, UnsupportedFile
from ingest.parsing.parsed import (
    Heading,
    Parsed,
    ParseLimits,
    ParseRequest,
    Refused,
    decode_reply,
    decode_request,
    encode,
)
from ingest.parsing.sandbox import Sandbox

LIMITS = ParseLimits(memory_bytes=512 << 20, cpu_s=10, wall_s=15, max_chars=100_000)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(LIMITS, parser="tests.ingest.parsing.bad_parsers") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "upload"
    path.write_text("good text")
    return path


def children() -> list[psutil.Process]:
    """The template and its parsers that run: a zombie waits only for its parent to look.

    Other tests' processes may live beside them.
    """
    alive = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "ingest.parsing.template" in child.cmdline():
                alive += [child, *child.children(recursive=True)]
    return [child for child in alive if is_running(child)]


def is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def num_alive() -> int:
    return len(children())


async def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come true in 5 s")


async def only_the_template_is_left() -> None:
    await eventually(lambda: num_alive() == 1)


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ("memory", "more than 512 MiB of memory"),
        ("flood", "gives more than .* bytes"),
        ("garbage", "makes no sense"),
        ("partial", "seconds of work or too much memory"),
        ("segfault", r"crashed on this file \(SIGSEGV\)"),
        ("error", "parser failed on this file"),
        ("write", r"crashed on this file \(SIGXFSZ\)|parser failed"),
        ("refuse", "The file is refused"),
    ],
)
async def test_bad_behaviour_ends_with_a_cause_and_the_next_file_is_read(
    sandbox: Sandbox, path: Path, behaviour: str, cause: str
) -> None:
    with pytest.raises(PermanentError, match=cause):
        await sandbox.read(path, behaviour)
    assert (await sandbox.read(path, "good")).text == "good text"
    await only_the_template_is_left()


@pytest.mark.parametrize(
    ("limits", "behaviour", "cause"),
    [
        (ParseLimits(wall_s=0.5), "sleep", r"longer than 0\.5 seconds"),
        (ParseLimits(cpu_s=1, wall_s=60), "loop", "more than 1 seconds of work"),
    ],
)
async def test_a_file_that_takes_for_ever_is_given_up(
    path: Path, limits: ParseLimits, behaviour: str, cause: str
) -> None:
    async with Sandbox(limits, parser="tests.ingest.parsing.bad_parsers") as sandbox:
        with pytest.raises(PermanentError, match=cause):
            await sandbox.read(path, behaviour)
        assert (await sandbox.read(path, "good")).text == "good text"
        await only_the_template_is_left()


async def test_a_hanging_file_does_not_hold_up_others(sandbox: Sandbox, path: Path) -> None:
    await sandbox.read(path, "good")
    async with asyncio.TaskGroup() as group:
        hanging = group.create_task(sandbox.read(path, "sleep"))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        texts = [await sandbox.read(path, "good") for _ in range(10)]
        assert time.monotonic() - started < 5.0
        assert {parsed.text for parsed in texts} == {"good text"}
        hanging.cancel()


async def test_cancelling_kills_the_parser(sandbox: Sandbox, path: Path) -> None:
    await sandbox.read(path, "good")
    reading = asyncio.create_task(sandbox.read(path, "loop"))
    await eventually(lambda: num_alive() == 3)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await only_the_template_is_left()


async def test_a_parser_ends_with_its_supervisor_and_no_zombie_stays(
    sandbox: Sandbox, path: Path
) -> None:
    await sandbox.read(path, "good")
    await only_the_template_is_left()
    [template] = children()
    reading = asyncio.create_task(sandbox.read(path, "sleep"))
    await eventually(lambda: num_alive() == 3)
    [supervisor] = template.children()
    supervisor.kill()
    with pytest.raises(TransientError, match="supervisor died"):
        await reading
    await only_the_template_is_left()
    await eventually(lambda: not template.children(recursive=True))


async def test_a_killed_template_is_started_again_for_all_who_wait(
    sandbox: Sandbox, path: Path
) -> None:
    await sandbox.read(path, "good")
    await only_the_template_is_left()
    [template] = children()
    template.kill()
    await eventually(lambda: not is_running(template))
    parsed = await asyncio.gather(*(sandbox.read(path, "good") for _ in range(5)))
    assert {each.text for each in parsed} == {"good text"}


async def test_closing_leaves_no_process(path: Path) -> None:
    async with Sandbox(LIMITS) as sandbox:
        await sandbox.read(path, "a.txt")
    await eventually(lambda: num_alive() == 0)


async def test_a_small_file_costs_less_than_a_tenth_of_a_second(path: Path) -> None:
    async with Sandbox(ParseLimits()) as sandbox:
        await sandbox.read(path, "warm.txt")
        seconds = []
        for _ in range(5):
            started = time.monotonic()
            await sandbox.read(path, "a.txt")
            seconds.append(time.monotonic() - started)
    assert min(seconds) < 0.1


async def test_the_parser_sees_no_secret_of_the_worker(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGWAY_TEST_SECRET", "hunter2")
    async with Sandbox(LIMITS) as sandbox:
        await sandbox.read(path, "a.txt")
        await only_the_template_is_left()
        [template] = children()
        assert "RINGWAY_TEST_SECRET" not in template.environ()
    assert "RINGWAY_TEST_SECRET" in os.environ


@pytest.mark.parametrize(
    "reply",
    [
        Refused(cause="no"),
        Parsed(text="é", notes=["n"], page_starts=[0], outline=[Heading(0, 1, "T")]),
    ],
)
def test_replies_survive_the_pipe(reply: Parsed | Refused) -> None:
    assert decode_reply(encode(reply)) == reply


def test_requests_survive_the_pipe() -> None:
    request = ParseRequest(path="/a", filename="b", limits=LIMITS)
    assert decode_request(encode(request)) == request


async def test_a_kind_that_nothing_reads_is_told_from_a_damaged_file(tmp_path: Path) -> None:
    picture, broken = tmp_path / "a.png", tmp_path / "b.pdf"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    broken.write_bytes(b"%PDF-1.7 and nothing more")
    async with Sandbox(ParseLimits()) as sandbox:
        with pytest.raises(UnsupportedFile):
            await sandbox.read(picture, "a.png")
        with pytest.raises(PermanentError) as damaged:
            await sandbox.read(broken, "b.pdf")
    assert not isinstance(damaged.value, UnsupportedFile)
