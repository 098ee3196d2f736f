"""What a rank needs of whatever carries out its steps; knows no torch and no sockets."""

from collections.abc import Callable
from typing import Protocol

from engines.gang.messages import Open, Step, StepDone


class StepTooLarge(Exception):
    """Memory for a step could not be had; a smaller one may go well. The message says what."""


class StepRunner(Protocol):
    def open(self, message: Open) -> None: ...

    def run(self, step: Step, cancelled: Callable[[int], bool]) -> StepDone:
        """Raises StepTooLarge, or whatever else ends the step on this rank."""
        ...

    def close(self, sequence_id: int) -> None: ...

    def leave(self) -> None:
        """Leave the process group, so that no other rank waits for this one in an exchange."""
        ...

    def join(self, rendezvous: str) -> None:
        """Meet the other ranks anew, and let it be as if the last step had not been run.

        After an Encode or Ask the sequence is in no known state and can only be closed.
        """
        ...
