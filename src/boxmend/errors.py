"""The errors that boxmend raises for its users, and the exit status of each.

    BoxmendError            3  something failed
    ├── UsageError          2  the call itself is wrong: an unknown name, a rate out of range
    ├── DataError           3  a dataset cannot be used as it is; names the file and the id
    ├── LossyError          3  the target format cannot hold everything in the source
    └── OutputError         3  the result could not be written; no unfinished file remains

Status 1 is not an error: `check` found errors in a dataset, or `diff` found differences.
"""

from collections.abc import Sequence
from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of a command."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    FAILURE = 3


class BoxmendError(Exception):
    """Base of all errors that the user sees as one message, without a traceback."""

    exit_status = ExitStatus.FAILURE


class UsageError(BoxmendError):
    """A call that is wrong for any data."""

    exit_status = ExitStatus.USAGE


class DataError(BoxmendError):
    """A dataset that cannot be used as it is."""


class LossyError(BoxmendError):
    """A conversion that would lose something; nothing was written."""

    def __init__(self, target: str, losses: Sequence[str]):
        self.losses = tuple(losses)
        listing = "".join(f"\n  - {loss}" for loss in losses)
        super().__init__(
            f"{target} cannot hold all of this dataset; it would lose:{listing}\n"
            "Pass --allow-lossy (allow_lossy=True) to convert the rest."
        )


class OutputError(BoxmendError):
    """Output that could not be written; boxmend has removed unfinished files."""
