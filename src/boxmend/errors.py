"""Everything boxmend raises on purpose, and the exit status each ends a command with.

    BoxmendError            3  something failed
    ├── UsageError          2  the call itself is wrong: an unknown name, a rate out of range
    ├── DataError           3  a dataset cannot be read as it is; names the file and the id
    ├── LossyError          3  the target format cannot hold all that the source does
    └── OutputError         3  the result could not be written; nothing was left behind

Status 1 is no error: it says that `check` found some or that `diff` saw a difference.
"""

from collections.abc import Sequence
from enum import IntEnum


class ExitStatus(IntEnum):
    """What a command leaves behind for the shell."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    FAILURE = 3


class BoxmendError(Exception):
    """Base of all errors that the user sees as one message, without a traceback."""

    exit_status = ExitStatus.FAILURE


class UsageError(BoxmendError):
    """The call is wrong, whatever the data are."""

    exit_status = ExitStatus.USAGE


class DataError(BoxmendError):
    """A dataset that cannot be used as it is."""


class LossyError(BoxmendError):
    """A conversion that would lose something, stopped before anything was written."""

    def __init__(self, target: str, losses: Sequence[str]):
        self.losses = tuple(losses)
        listing = "".join(f"\n  - {loss}" for loss in losses)
        super().__init__(
            f"{target} cannot hold all of this dataset; it would lose:{listing}\n"
            "Pass --allow-lossy (allow_lossy=True) to convert the rest."
        )


class OutputError(BoxmendError):
    """The output could not be written; whatever was begun has been removed again."""
