"""A variant to fuzz: one command with one kind of input."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """A command with one kind of input."""

    name: str
    line: str  # the command; inputs are below in/, the output is `out` or `out.*`
    parts: str  # inputs that it needs
    targets: str  # patterns of the files that are mutated, below in/
    options: tuple[str, ...] = ("",)  # one of them is added
    numbers: str = ""  # options that take a number
    reread: str = ""  # key of rereading.READERS; empty: the output is not read
    may_change: str = ""  # patterns of inputs that the command writes when it succeeds
    weight: int = 10  # how often it is drawn, compared with others
    torch: bool = False  # whether it needs torch
