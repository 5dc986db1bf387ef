"""The errors that boxmend raises for users, and the exit status of a command that ends with one.

    BoxmendError            3  the base of all errors
    ├── UsageError          2  the call is wrong: an unknown name, a rate out of range
    ├── DataError           3  data cannot be used; the message names the file and the id
    ├── LossyError          3  the target format cannot represent the whole dataset
    └── OutputError         3  the result could not be written; incomplete files are removed

Status 1 is not an error: it means that `check` has findings, or that `diff` found a difference.
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
    """The base of all errors that the user sees as a message without a traceback."""

    exit_status = ExitStatus.FAILURE


class UsageError(BoxmendError):
    """An error of the call, independent of the data."""

    exit_status = ExitStatus.USAGE


class DataError(BoxmendError):
    """An error of the data: a file is damaged, or its content cannot be used."""


class LossyError(BoxmendError):
    """A conversion that would lose information; nothing has been written."""

    def __init__(self, target: str, losses: Sequence[str]):
        self.losses = tuple(losses)
        listing = "".join(f"\n  - {loss}" for loss in losses)
        super().__init__(
            f"{target} cannot represent the whole dataset; the conversion would lose:{listing}\n"
            "Pass --allow-lossy (allow_lossy=True) to convert the rest."
        )


class OutputError(BoxmendError):
    """The output could not be written; incomplete files have been removed."""
