"""Kill commands while they write and check that nothing half-done counts as done.

    python fuzz/kill_commands.py --kills 300 --seed 1
    python fuzz/kill_commands.py --minutes 5 --target apply
    python fuzz/kill_commands.py --target apply --kill event:7       # repeat one kill

A command is killed before its n-th change of a file (event:N), when a file becomes larger than N
bytes (size:N), or after N milliseconds (time:N). Then the output has to be absent or complete, and
files that are replaced the old or the new ones; the same command has to succeed when it is run
again, or to say that its output is there, and must leave nothing but its output. Training goes on
with --resume. Also counted are files that are renamed into place without a sync before, which a
power cut could lose.
"""

import argparse
import functools
import random
import shlex
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import worlds
from boxmend.auditing.fixes.verdicts import read_verdicts
from children import Ended, Task
from kill_targets import TARGETS, Target
from killing import ALL, limit_files, noted, watch_files
from rereading import ACKNOWLEDGED, visit_server
from snapshots import snapshot
from states import (
    State,
    find_unstable,
    has_half_output,
    inode,
    is_complete,
    is_leftover,
    mixed_files,
    read_state,
)
from workplaces import Workplace, print_table, workplace

PATIENCE = 120.0  # seconds for a command that is not killed
NAMING = ("os.rename", "os.link")  # events that give a file its name
SHARE_OF_EVENTS, SHARE_OF_SIZES = 0.6, 0.2


@dataclass(frozen=True)
class Reference:
    """What an undisturbed run of a target does."""

    target: Target
    status: int
    before: State
    after: State
    unstable: dict[str, set[str]]
    num_events: int
    largest: int  # bytes of a file
    seconds: float
    unsynced: list[str]  # files that were renamed into place without a sync


def lay_out(place: Workplace, target: Target) -> None:
    """Prepare the folder of the case."""
    place.world.lay_out(tuple(target.parts.split()))
    if target.makes:
        (place.world.case / target.makes).mkdir()


def run(
    place: Workplace,
    target: Target,
    line: str,
    begin: Callable[[], None] | None = None,
    kill_after: float | None = None,
) -> Ended:
    """Run a command of a target."""
    task = Task(
        place.world.case,
        shlex.split(line),
        begin=begin or (visit_server if target.name == "review" else None),
        seconds=PATIENCE,
        kill_after=kill_after,
    )
    return place.run(task, torch=target.torch)


def measure(place: Workplace, target: Target) -> Reference:
    """Run a target three times undisturbed: what it leaves, in which steps, how long it takes."""
    case = place.world.case
    copies = [case.with_name(f"copy-{k}") for k in range(2)]
    for copy in copies:
        lay_out(place, target)
        worlds.remove(copy)
        run(place, target, target.line)
        shutil.copytree(case, copy, symlinks=True)
        time.sleep(0.01)  # so that times differ
    lay_out(place, target)
    raw = snapshot(case)
    begin = functools.partial(watch_files, case, None, target.name == "review")
    ended = run(place, target, target.line, begin)
    if ended.status not in (0, 1):
        raise RuntimeError(f"{target.name} ended with {ended.status}: {ended.stderr}")
    events = noted(case)
    unstable = find_unstable([*copies, case], set(target.counters.split()))
    after = read_state(case, unstable)
    made = [case / path for path in after if after[path] != raw.get(path)]
    sizes = [path.lstat().st_size for path in made if path.is_file()]
    unsynced = _unsynced(
        events, [path for path in made if path.is_file() and not path.is_symlink()]
    )
    for copy in copies:
        worlds.remove(copy)
    lay_out(place, target)
    before = read_state(case, unstable)
    largest = max(sizes, default=1)
    return Reference(
        target, ended.status, before, after, unstable, len(events), largest, ended.seconds, unsynced
    )


def _unsynced(events: list[list[str]], made: list[Path]) -> list[str]:
    """The files among those made that got their name before they were synced."""
    found = []
    for path in made:
        places = {str(path), *map(str, path.parents)}
        named = [
            k for k, (event, *paths) in enumerate(events) if event in NAMING and paths[-1] in places
        ]
        syncs = (["sync", inode(path)], ["sync", ALL])
        if named and not any(event in syncs for event in events[: named[-1]]):
            found.append(str(path))
    return found


def try_kill(place: Workplace, reference: Reference, kill: str) -> tuple[bool, list[str]]:
    """Kill a target in one way and run it again: whether it was killed, and what is wrong."""
    target, case = reference.target, place.world.case
    lay_out(place, target)
    kind, _, number = kill.partition(":")
    visit = target.name == "review"
    begin, kill_after = None, None
    if kind == "event":
        begin = functools.partial(watch_files, case, int(number), visit)
    elif kind == "size":
        begin = functools.partial(limit_files, int(number), visit)
    else:
        kill_after = int(number) / 1000
    ended = run(place, target, target.line, begin, kill_after)
    killed = read_state(case, reference.unstable)
    complete = is_complete(killed, reference.after, reference.before)
    found = [] if target.is_resumable else _after_kill(reference, killed, complete)
    found += _lost_verdicts(ended.stdout, case / "in/audit")
    again = run(place, target, target.again or target.line)
    found += _after_rerun(reference, again, read_state(case, reference.unstable))
    return ended.signal != 0, found


def _after_kill(reference: Reference, killed: State, complete: bool) -> list[str]:
    if complete:
        return []
    found = []
    appended = ("in/audit/verdicts.jsonl",)  # may end in a torn line
    mixed = mixed_files(killed, reference.after, reference.before)
    if mixed := [path for path in mixed if path not in appended]:
        found.append(f"mixed file: {mixed[0]}")
    if has_half_output(killed, reference.after):
        found.append("half output")
    return found


def _lost_verdicts(stdout: str, audit: Path) -> list[str]:
    """Compare the verdicts that a review has acknowledged with those on disk."""
    _, mark, number = stdout.partition(ACKNOWLEDGED)
    if not mark:
        return []
    there = len(read_verdicts(audit))
    return [] if there >= int(number.split()[0]) else [f"lost verdicts: {there} are there"]


def _after_rerun(reference: Reference, again: Ended, state: State) -> list[str]:
    if again.hung or again.status not in (0, 1, 2, 3) or "Traceback" in again.stderr:
        return [f"rerun ended with {again.status}: {again.stderr[-300:]}"]
    found = []
    wrong = [path for path in reference.after if state.get(path) != reference.after[path]]
    wrong += [path for path in state if path not in reference.after and not is_leftover(path)]
    if wrong and again.status in (2, 3):
        found.append(f"rerun refused: {again.stderr.strip()[-300:]}")
    elif wrong and reference.target.name not in ("review", "import"):  # they append lines
        told = [one.get(wrong[0]) for one in (state, reference.after)]
        found.append(f"differs after rerun: {wrong[0]}: {_difference(*told)}")
    left = [path for path in state if is_leftover(path) and path not in reference.after]
    if left := [path for path in left if path not in reference.before]:
        found.append(f"leftover: {left[0]}")
    return found


def _difference(own: Any, expected: Any) -> str:
    """Where two contents of a file differ, if they were read as values."""
    if not isinstance(own, list) or not isinstance(expected, list):
        return "other bytes" if own and expected else "there" if own else "missing"
    return f"{sorted({*own} - {*expected})[:4]} in place of {sorted({*expected} - {*own})[:4]}"


def kills_of(reference: Reference, rng: random.Random) -> Iterator[str]:
    """Ways to kill a target without end: each event once, among sizes and moments."""
    numbers = list(range(reference.num_events))
    rng.shuffle(numbers)
    while True:
        draw = rng.random()
        if draw < SHARE_OF_EVENTS and numbers:
            yield f"event:{numbers.pop()}"
        elif draw < SHARE_OF_EVENTS + SHARE_OF_SIZES:
            yield f"size:{rng.randrange(reference.largest)}"
        else:
            yield f"time:{int(rng.uniform(0, 1000 * reference.seconds))}"


def run_kills(place: Workplace, options: argparse.Namespace) -> int:
    """Kill targets by turns; returns the number of failures."""
    rng = random.Random(options.seed)
    chosen = [one for one in TARGETS if options.target in (None, one.name)]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    started, failed = time.monotonic(), 0
    references: dict[str, Reference] = {}
    ways: dict[str, Iterator[str]] = {}
    number = 0
    while not _is_over(options, number, started):
        target = rng.choices(chosen, [one.weight for one in chosen])[0]
        if number < len(chosen):
            target = chosen[number]  # each once at least
        if target.name not in references:
            made = references[target.name] = measure(place, target)
            ways[target.name] = kills_of(made, random.Random(f"{options.seed} {target.name}"))
            if made.unsynced:
                counts[target.name]["unsynced files"] += len(made.unsynced)
                failed += 1
                print(f"UNSYNCED {target.name}: {len(made.unsynced)}, like {made.unsynced[0]}")
        kill = options.kill or next(ways[target.name])
        was_killed, found = try_kill(place, references[target.name], kill)
        counts[target.name].update({"cases": 1, "killed": int(was_killed)})
        counts[target.name].update({one.partition(":")[0] for one in found} or {"fine"})
        if found:
            failed += 1
            print(f"FAILED {target.name} at {kill}: {'; '.join(found)[:600]}")
            print(
                f"  python fuzz/kill_commands.py --target {target.name} --kill {kill}", flush=True
            )
        number += 1
    print_table("command", counts, time.monotonic() - started)
    return failed


def _is_over(options: argparse.Namespace, number: int, started: float) -> bool:
    if options.kill:
        return number > 0
    if options.minutes:
        return time.monotonic() - started > 60 * float(options.minutes)
    return number >= int(options.kills)


def main() -> int:
    """Read the command line, make the inputs, kill."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=300, help="number of kills")
    parser.add_argument("--minutes", type=float, help="time for all kills, instead of --kills")
    parser.add_argument("--target", choices=[one.name for one in TARGETS], help="only this command")
    parser.add_argument("--kill", help="only this kill: event:N, size:N or time:N; with --target")
    options = parser.parse_args()
    if options.kill and options.target is None:
        parser.error("--kill needs --target")
    with workplace() as place:
        return 1 if run_kills(place, options) else 0


if __name__ == "__main__":
    sys.exit(main())
