"""What both drivers need: the inputs, the processes that start commands, and a table at the end."""

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import children
import worlds
from children import Ended, Starter, Task
from variants import VARIANTS
from worlds import World

THREADED = ("review", "evaluate-json", "bench-audit")  # variants
COUNTS = ("cases", "killed", "fine", "refused")  # the columns of a table before those of failures


@dataclass(frozen=True)
class Workplace:
    """The inputs, and what starts commands: with torch, and without."""

    world: World
    starters: Mapping[bool, Starter]

    def run(self, task: Task, *, torch: bool) -> Ended:
        """Run a command in a new process."""
        return self.starters[torch].run(task)


@contextlib.contextmanager
def workplace() -> Iterator[Workplace]:
    """Make all inputs in a temporary folder, which is removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="boxmend-fuzz-"))
    starters: dict[bool, Starter] = {}
    try:
        children.prepare()
        world = World(root / "world", root / "case")
        starters[True] = Starter(lambda: worlds.build(world))
        starters[False] = Starter(lambda: _warm_up(world))
        yield Workplace(world, starters)
    finally:
        for one in starters.values():
            one.stop()
        shutil.rmtree(root, ignore_errors=True)


def _warm_up(world: World) -> None:
    """Run commands without torch once, so that children find everything imported.

    Not those that start threads which a fork loses, as hotcoco does to score detections.
    """
    import hotcoco  # noqa: F401  # only imported

    for variant in VARIANTS.values():
        if not variant.torch and variant.name not in THREADED:
            world.lay_out(tuple(variant.parts.split()))
            os.chdir(world.case)
            worlds.command(*shlex.split(variant.line))
    os.chdir(world.case.parent)
    if "torch" in sys.modules:
        raise RuntimeError("a command that needs no torch has imported it")


def print_table(what: str, counts: Mapping[str, Counter[str]], seconds: float) -> None:
    """Print what came of the cases of each variant or command."""
    found = {sort for one in counts.values() for sort in one}
    sorts = [one for one in COUNTS if one in found]
    sorts += sorted(found - set(COUNTS))
    width = max(map(len, (what, *counts)))
    total = sum(counts.values(), Counter[str]())
    print("  ".join([what.ljust(width), *sorts]))
    for name, one in (*sorted(counts.items()), ("all", total)):
        cells = [str(one[sort]).rjust(len(sort)) for sort in sorts]
        print("  ".join([name.ljust(width), *cells]))
    print(f"{total['cases']:,} cases in {seconds:.0f} s")
