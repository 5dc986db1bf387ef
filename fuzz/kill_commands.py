"""Kill commands while they write and check that nothing half-done counts as done.

    python fuzz/kill_commands.py --kills 300 --seed 1
    python fuzz/kill_commands.py --minutes 5 --target apply
    python fuzz/kill_commands.py --target apply --kill event:7       # repeat one kill

A command is killed before its n-th change of a file (event:N), when a file becomes larger than N
bytes (size:N), or after N milliseconds (time:N). Afterwards the output must be absent or complete,
and every replaced file must have its old or its new content. Then the same command runs again: it
must succeed or say that its output exists, and it must leave nothing but its output. Training
resumes with --resume. The table also counts files that are renamed into place before they are
synced, because a power cut could lose them.
"""

import argparse
import fnmatch
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
from children import ChildResult, Task
from kill_targets import TARGETS, Target
from killing import ALL_FILES, limit_file_size, log_changes, read_events
from rereading import ACKNOWLEDGED, visit_server
from snapshots import snapshot
from states import (
    State,
    find_mixed_files,
    find_unstable,
    has_half_output,
    is_complete,
    is_leftover,
    read_inode,
    read_state,
)
from workplaces import Workplace, print_table, workplace

MAX_SECONDS = 120.0  # for a command that is not killed
RENAME_EVENTS = ("os.rename", "os.link")  # audit events that put a file in its place
SHARE_OF_EVENTS, SHARE_OF_SIZES = 0.6, 0.2


@dataclass(frozen=True)
class Reference:
    """What a target does in a run that is not killed."""

    target: Target
    status: int
    before: State
    after: State
    unstable: dict[str, set[str]]
    num_events: int
    largest: int  # bytes of a file
    seconds: float
    unsynced: list[str]  # files that were renamed into place before a sync


def prepare_case(place: Workplace, target: Target) -> None:
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
) -> ChildResult:
    """Run a command of a target."""
    task = Task(
        place.world.case,
        shlex.split(line),
        begin=begin or (visit_server if target.name == "review" else None),
        seconds=MAX_SECONDS,
        kill_after=kill_after,
    )
    return place.run(task, torch=target.torch)


def measure(place: Workplace, target: Target) -> Reference:
    """Run a target three times without a kill; return its output, its steps and its time."""
    case = place.world.case
    copies = [case.with_name(f"copy-{k}") for k in range(2)]
    for copy in copies:
        prepare_case(place, target)
        worlds.remove(copy)
        run(place, target, target.line)
        shutil.copytree(case, copy, symlinks=True)
        time.sleep(0.01)  # so that times differ
    prepare_case(place, target)
    raw = snapshot(case)
    begin = functools.partial(log_changes, case, None, target.name == "review")
    result = run(place, target, target.line, begin)
    if result.status not in (0, 1):
        raise RuntimeError(f"{target.name} ended with {result.status}: {result.stderr}")
    events = read_events(case)
    unstable = find_unstable([*copies, case], set(target.counters.split()))
    after = _select_comparable(read_state(case, unstable), target)
    created = [case / path for path in after if after[path] != raw.get(path)]
    sizes = [path.lstat().st_size for path in created if path.is_file()]
    unsynced = _find_unsynced(
        events, [path for path in created if path.is_file() and not path.is_symlink()]
    )
    for copy in copies:
        worlds.remove(copy)
    prepare_case(place, target)
    before = read_state(case, unstable)
    largest = max(sizes, default=1)
    return Reference(
        target,
        result.status,
        before,
        after,
        unstable,
        len(events),
        largest,
        result.seconds,
        unsynced,
    )


def _select_comparable(state: State, target: Target) -> State:
    """Return a state without the files whose names differ in every run."""
    patterns = target.varying_names.split()
    return {
        path: content
        for path, content in state.items()
        if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
    }


def _find_unsynced(events: list[list[str]], created: list[Path]) -> list[str]:
    """Return the created files that were renamed into place before they were synced."""
    unsynced = []
    for path in created:
        places = {str(path), *map(str, path.parents)}
        named = [
            k
            for k, (event, *paths) in enumerate(events)
            if event in RENAME_EVENTS and paths[-1] in places
        ]
        syncs = (["sync", read_inode(path)], ["sync", ALL_FILES])
        if named and not any(event in syncs for event in events[: named[-1]]):
            unsynced.append(str(path))
    return unsynced


def try_kill(place: Workplace, reference: Reference, kill: str) -> tuple[bool, list[str]]:
    """Kill a target in one way and run it again; return whether it was killed, and the problems."""
    target, case = reference.target, place.world.case
    prepare_case(place, target)
    kind, _, number = kill.partition(":")
    is_review = target.name == "review"
    begin, kill_after = None, None
    if kind == "event":
        begin = functools.partial(log_changes, case, int(number), is_review)
    elif kind == "size":
        begin = functools.partial(limit_file_size, int(number), is_review)
    else:
        kill_after = int(number) / 1000
    result = run(place, target, target.line, begin, kill_after)
    killed = read_state(case, reference.unstable)
    is_finished = is_complete(killed, reference.after, reference.before)
    problems = [] if target.is_resumable else _check_after_kill(reference, killed, is_finished)
    problems += _check_verdicts(result.stdout, case / "in/audit")
    again = run(place, target, target.again or target.line)
    state = _select_comparable(read_state(case, reference.unstable), target)
    problems += _check_after_rerun(reference, again, state)
    return result.signal != 0, problems


def _check_after_kill(reference: Reference, killed: State, is_finished: bool) -> list[str]:
    if is_finished:
        return []
    problems = []
    appended = ("in/audit/verdicts.jsonl",)  # may end in a torn line
    mixed = find_mixed_files(killed, reference.after, reference.before)
    if mixed := [path for path in mixed if path not in appended]:
        problems.append(f"mixed file: {mixed[0]}")
    if has_half_output(killed, reference.after):
        problems.append("half output")
    return problems


def _check_verdicts(stdout: str, audit: Path) -> list[str]:
    """Check that all verdicts which a review has acknowledged are on disk."""
    _, mark, number = stdout.partition(ACKNOWLEDGED)
    if not mark:
        return []
    stored = len(read_verdicts(audit))
    return [] if stored >= int(number.split()[0]) else [f"lost verdicts: only {stored} are stored"]


def _check_after_rerun(reference: Reference, again: ChildResult, state: State) -> list[str]:
    if again.hung or again.status not in (0, 1, 2, 3) or "Traceback" in again.stderr:
        return [f"rerun ended with {again.status}: {again.stderr[-300:]}"]
    problems = []
    wrong = [path for path in reference.after if state.get(path) != reference.after[path]]
    wrong += [path for path in state if path not in reference.after and not is_leftover(path)]
    if wrong and again.status in (2, 3):
        problems.append(f"rerun refused: {again.stderr.strip()[-300:]}")
    elif wrong and reference.target.name not in ("review", "import"):  # these append lines
        contents = [files.get(wrong[0]) for files in (state, reference.after)]
        problems.append(f"differs after rerun: {wrong[0]}: {_describe_difference(*contents)}")
    left = [path for path in state if is_leftover(path) and path not in reference.after]
    if left := [path for path in left if path not in reference.before]:
        problems.append(f"leftover: {left[0]}")
    return problems


def _describe_difference(own: Any, expected: Any) -> str:
    """Describe where two contents of a file differ."""
    if not isinstance(own, list) or not isinstance(expected, list):
        return "other bytes" if own and expected else "unexpected" if own else "missing"
    return f"{sorted({*own} - {*expected})[:4]} in place of {sorted({*expected} - {*own})[:4]}"


def draw_kills(reference: Reference, rng: random.Random) -> Iterator[str]:
    """Yield endless ways to kill a target: each event once, mixed with sizes and times."""
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
    """Kill randomly drawn targets; return the number of failures."""
    rng = random.Random(options.seed)
    chosen = [target for target in TARGETS if options.target in (None, target.name)]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    started, failed = time.monotonic(), 0
    references: dict[str, Reference] = {}
    ways: dict[str, Iterator[str]] = {}
    number = 0
    while not _is_over(options, number, started):
        target = rng.choices(chosen, [target.weight for target in chosen])[0]
        if number < len(chosen):
            target = chosen[number]  # each at least once
        if target.name not in references:
            reference = references[target.name] = measure(place, target)
            ways[target.name] = draw_kills(
                reference, random.Random(f"{options.seed} {target.name}")
            )
            if paths := reference.unsynced:
                counts[target.name]["unsynced files"] += len(paths)
                failed += 1
                print(f"UNSYNCED {target.name}: {len(paths)}, like {paths[0]}")
        kill = options.kill or next(ways[target.name])
        was_killed, problems = try_kill(place, references[target.name], kill)
        counts[target.name].update({"cases": 1, "killed": int(was_killed)})
        counts[target.name].update({problem.partition(":")[0] for problem in problems} or {"fine"})
        if problems:
            failed += 1
            print(f"FAILED {target.name} at {kill}: {'; '.join(problems)[:600]}")
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
    """Read the command line, make the inputs and kill commands."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=300, help="number of kills")
    parser.add_argument("--minutes", type=float, help="time for all kills, instead of --kills")
    parser.add_argument(
        "--target", choices=[target.name for target in TARGETS], help="only this command"
    )
    parser.add_argument("--kill", help="only this kill: event:N, size:N or time:N; with --target")
    options = parser.parse_args()
    if options.kill and options.target is None:
        parser.error("--kill needs --target")
    with workplace() as place:
        return 1 if run_kills(place, options) else 0


if __name__ == "__main__":
    sys.exit(main())
