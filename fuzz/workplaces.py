"""The inputs, the fork servers and the table of results that both drivers share."""

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
from children import ChildResult, ForkServer, Task
from variants import VARIANTS
from worlds import World

THREADED_VARIANTS = (
    *("review", "evaluate-json"),
    *("bench-audit", "bench-audit-corrected", "bench-audit-suite"),
)
FIRST_OUTCOMES = (
    "cases",
    "killed",
    "fine",
    "refused",
)  # the columns of a table before those of failures


@dataclass(frozen=True)
class Workplace:
    """The inputs, and a fork server for commands with torch and for those without."""

    world: World
    servers: Mapping[bool, ForkServer]

    def run(self, task: Task, *, torch: bool) -> ChildResult:
        """Run a command in a new process."""
        return self.servers[torch].run(task)


@contextlib.contextmanager
def workplace() -> Iterator[Workplace]:
    """Make all inputs in a temporary folder, which is removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="boxmend-fuzz-"))
    servers: dict[bool, ForkServer] = {}
    try:
        children.prepare()
        world = World(root / "world", root / "case")
        servers[True] = ForkServer(lambda: worlds.build(world))
        servers[False] = ForkServer(lambda: _warm_up(world))
        yield Workplace(world, servers)
    finally:
        for server in servers.values():
            server.stop()
        shutil.rmtree(root, ignore_errors=True)


def _warm_up(world: World) -> None:
    """Run commands without torch once, so that everything is imported before a fork.

    Commands that start threads are left out because a fork loses threads; hotcoco starts some.
    """
    import hotcoco  # noqa: F401  # imported before the fork

    for variant in VARIANTS.values():
        if not variant.torch and variant.name not in THREADED_VARIANTS:
            world.lay_out(tuple(variant.parts.split()))
            os.chdir(world.case)
            worlds.run_command(*shlex.split(variant.line))
    os.chdir(world.case.parent)
    if "torch" in sys.modules:
        raise RuntimeError("a command that needs no torch has imported it")


def print_table(what: str, counts: Mapping[str, Counter[str]], seconds: float) -> None:
    """Print how many cases of each variant or command had each outcome."""
    seen = {outcome for row in counts.values() for outcome in row}
    outcomes = [outcome for outcome in FIRST_OUTCOMES if outcome in seen]
    outcomes += sorted(seen - set(FIRST_OUTCOMES))
    width = max(map(len, (what, *counts)))
    total = sum(counts.values(), Counter[str]())
    print("  ".join([what.ljust(width), *outcomes]))
    for name, row in (*sorted(counts.items()), ("all", total)):
        cells = [str(row[outcome]).rjust(len(outcome)) for outcome in outcomes]
        print("  ".join([name.ljust(width), *cells]))
    print(f"{total['cases']:,} cases in {seconds:.0f} s")
