"""Runs a parser where it can do no harm: another process, bounded and killable.

Knows how a parser process is asked and what its end means; knows no file format.
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from types import TracebackType

import msgspec

from ingest.api import PermanentError, TransientError, UnsupportedFile
from ingest.parsing.parsed import Parsed, ParseLimits, ParseRequest, Refused, decode_reply, encode
from ingest.parsing.template import TRAILER, End

READ_BYTES = 1 << 16
GRACE_S = 5.0
BYTES_PER_CHAR = 4
FRAME_BYTES = 1 << 20


class Sandbox:
    """Keeps one warm template process; each file is parsed in a fork of it.

    Use as an async context manager. Safe for concurrent reads.
    """

    def __init__(self, limits: ParseLimits, *, parser: str = "ingest.parsing.registry") -> None:
        self._limits = limits
        self._parser = parser
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()

    async def __aenter__(self) -> "Sandbox":
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop()

    async def read(self, path: Path, filename: str) -> Parsed:
        """Parse one file. Cancelling kills the parser.

        Raises PermanentError when the file is refused, breaks the parser or exceeds a limit;
        TransientError when the sandbox itself fails.
        """
        request = ParseRequest(path=str(path), filename=filename, limits=self._limits)
        ours = await self._submit(encode(request))
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        try:
            async with asyncio.timeout(self._limits.wall_s + GRACE_S):
                output = await self._collect(reader)
        except TimeoutError as error:
            raise PermanentError(_too_slow(self._limits)) from error
        except ConnectionError as error:
            raise TransientError("the parser's connection broke") from error
        finally:
            writer.close()
        return self._understand(output)

    async def _collect(self, reader: asyncio.StreamReader) -> bytearray:
        limit = self._limits.max_chars * BYTES_PER_CHAR + FRAME_BYTES
        output = bytearray()
        while piece := await reader.read(READ_BYTES):
            output += piece
            if len(output) > limit:
                raise PermanentError(f"Reading the file gives more than {limit} bytes of text.")
        return output

    def _understand(self, output: bytearray) -> Parsed:
        if len(output) < TRAILER.size:
            raise TransientError("the parser's supervisor died")
        body = bytes(output[: -TRAILER.size])
        end, number = TRAILER.unpack(output[-TRAILER.size :])
        if end == End.TIMED_OUT:
            raise PermanentError(_too_slow(self._limits))
        if end == End.SIGNALLED:
            raise PermanentError(_killed(number, self._limits))
        if number != 0:
            raise PermanentError("The parser failed on this file; it is probably damaged.")
        try:
            reply = decode_reply(body)
        except msgspec.DecodeError as error:
            raise PermanentError("The parser gave an answer that makes no sense.") from error
        if isinstance(reply, Refused):
            raise (UnsupportedFile if reply.unsupported else PermanentError)(reply.cause)
        return reply

    async def _submit(self, request: bytes) -> socket.socket:
        for _ in range(2):
            async with self._starting:
                control = self._control
            assert control is not None, "the sandbox is not open"
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    socket.send_fds(control, [request], [theirs.fileno()])
                except OSError:
                    ours.close()
                else:
                    return ours
            await self._restart(control)
        raise TransientError("the parser process does not start")

    async def _restart(self, broken: socket.socket) -> None:
        async with self._starting:
            if self._control is broken:
                await self._stop()
                await self._start()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ingest.parsing.template",
                str(theirs.fileno()),
                self._parser,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={"PYTHONPATH": path, "PATH": os.defpath},
            )
        self._control = ours

    async def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                async with asyncio.timeout(GRACE_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
            self._process = None


def _too_slow(limits: ParseLimits) -> str:
    return f"Reading the file takes longer than {limits.wall_s:g} seconds."


def _killed(number: int, limits: ParseLimits) -> str:
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return (
            f"Reading the file takes more than {limits.cpu_s} seconds of work or too much memory."
        )
    name = signal.Signals(number).name
    if number == signal.SIGABRT:
        # What C++ does when it gets no memory.
        mebibytes = limits.memory_bytes >> 20
        return (
            f"The parser crashed on this file ({name}): it is damaged, or reading it needs more "
            f"than {mebibytes} MiB of memory."
        )
    return f"The parser crashed on this file ({name})."
