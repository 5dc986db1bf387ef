"""Run every command on mutated inputs and check that nothing but an answer comes of it.

    python fuzz/mutate_inputs.py --cases 1000 --seed 1
    python fuzz/mutate_inputs.py --minutes 5 --variant apply
    python fuzz/mutate_inputs.py --seed 1 --variant apply --case 17   # repeat one case

Each case mutates a small valid input and runs a command in a forked process. A failure is: an
exception that boxmend does not expect, a status other than 0 to 3, more than 20 seconds, more than
2 GB of memory, an output that is incomplete or that boxmend cannot read, leftovers, a changed
input, or a file written outside of the output. Each failure prints how to repeat it and keeps its
input. The exit status is 1 if there was any.
"""

import argparse
import itertools
import os
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import children
import odd_values
from children import Ended, Task
from mutations import mutate
from rereading import READERS, visit_server
from snapshots import Snapshot, changed, leftovers, matching, snapshot
from variants import VARIANTS, Variant
from workplaces import Workplace, print_table, workplace

UNMUTATED = -1  # number of the case whose input is as it was made
STATUSES = {children.TRACEBACK: "traceback", children.UNREADABLE: "unreadable output"}
STATUSES |= {children.OUTSIDE: "written outside"}
GOES_ON = "run revert again"  # what `revert` says where it has restored some of the files
EXCEPTION = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Tried:
    """One case and what came of it."""

    variant: Variant
    number: int
    words: str  # what was mutated
    tokens: list[str]
    ended: Ended
    failures: list[str]


def try_case(place: Workplace, variant: Variant, seed: int, number: int) -> Tried:
    """Mutate an input of a variant and run its command."""
    rng = random.Random(f"{seed} {variant.name} {number}")
    case, folder = place.world.case, place.world.lay_out(tuple(variant.parts.split()))
    words, tokens = "as it was", shlex.split(variant.line)
    if number != UNMUTATED:
        tokens += shlex.split(rng.choice(variant.options))
        words, more = _mutated(folder, variant, rng)
        tokens += more
    before = snapshot(case)
    reader = READERS.get(variant.reread)
    begin = visit_server if variant.name == "review" else None
    ended = place.run(Task(case, tokens, reader, begin), torch=variant.torch)
    failures = _failures(variant, tokens, ended, before, snapshot(case))
    if number == UNMUTATED and ended.status not in (0, 1):
        failures.append(f"valid input ended with {ended.status}")
    return Tried(variant, number, words, tokens, ended, failures)


def _mutated(folder: Path, variant: Variant, rng: random.Random) -> tuple[str, list[str]]:
    """Mutate a file or two, or a number of the command line: what was done, and more tokens."""
    if variant.numbers and rng.random() < 0.1:
        option = rng.choice(variant.numbers.split())
        value = str(odd_values.number(rng))[:100]
        return f"{option} {value}", [option, value]
    words = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        groups = [_files(folder, pattern) for pattern in variant.targets.split()]
        if groups := [one for one in groups if one]:
            words.append(mutate(rng.choice(groups), rng))
    return "; ".join(words), []


def _files(folder: Path, pattern: str) -> list[Path]:
    """The regular files of a pattern, in all folders below that of the pattern."""
    below, _, name = pattern.rpartition("/")
    return [one for one in (folder / below).rglob(name) if one.is_file() and not one.is_symlink()]


def _failures(
    variant: Variant, tokens: list[str], ended: Ended, before: Snapshot, after: Snapshot
) -> list[str]:
    found = _bad_endings(ended)
    succeeded = ended.status in (0, 1)
    paths = changed(before, after)
    outputs = [path for path in paths if path == "out" or path.startswith(("out/", "out."))]
    inputs = [path for path in paths if path.startswith("in/")]
    if succeeded or variant.name == "resume" or GOES_ON in ended.stderr:
        allowed = tuple(f"in/{one}" for one in variant.may_change.split())
        inputs = [path for path in inputs if path not in matching(inputs, allowed)]
    if inputs:
        found.append(f"input changed: {inputs[0]!a}")
    is_unfinished = variant.reread == "run" and "out/run.json" in after
    if not succeeded and outputs and not is_unfinished:
        found.append(f"output left: {outputs[0]!a}")
    is_written = any(one == "out" or one.startswith("out.") for one in tokens)
    if succeeded and is_written and not outputs:
        found.append("no output")
    if is_unfinished:
        after = {path: told for path, told in after.items() if path != "out/.lock"}
    if left := [path for path in leftovers(after) if path not in before]:
        found.append(f"leftover: {left[0]!a}")
    others = [path for path in paths if not path.startswith(("in/", "out", "tmp/"))]
    others += [path for path in paths if path.startswith("tmp/") and ended.status in (0, 1, 2)]
    if unknown := [path for path in others if path not in left]:
        found.append(f"other file: {unknown[0]!a}")
    return found


def _bad_endings(ended: Ended) -> list[str]:
    if ended.hung:
        return ["hang"]
    if ended.signal:
        return [f"signal {ended.signal}"]
    found = []
    if ended.status not in (0, 1, 2, 3):
        found.append(STATUSES.get(ended.status or 0, f"status {ended.status}"))
    elif EXCEPTION in ended.stderr:
        found.append("traceback")
    elif ended.status in (2, 3) and not ended.stderr.strip() and not ended.stdout.strip():
        found.append("no message")
    if ended.peak_bytes > children.MOST_BYTES or "out of memory" in ended.stderr:
        found.append("memory")
    return found


def _drawn(seed: int, number: int) -> Variant:
    """The variant of a case, where none is named."""
    rng = random.Random(f"{seed} {number}")
    names = list(VARIANTS)
    return VARIANTS[rng.choices(names, [VARIANTS[name].weight for name in names])[0]]


def tell_failure(case: Path, tried: Tried, seed: int, keep: Path) -> None:
    """Print how to repeat a failure, and keep what it was about."""
    name = tried.variant.name
    kept = keep / f"{name}-{seed}-{tried.number}"
    if not kept.exists():
        shutil.copytree(case, kept, symlinks=True, ignore=_ignore_special)
        (kept / "stderr").write_text(tried.ended.stderr, errors="backslashreplace")
    last = [line for line in tried.ended.stderr.splitlines() if line.strip()][-1:]
    print(f"FAILED {', '.join(tried.failures)}: {tried.words!a}: {''.join(last)[:200]!a}")
    print(f"  boxmend {shlex.join(tried.tokens)!a}, in {kept}")
    print(f"  python fuzz/mutate_inputs.py --seed {seed} --variant {name} --case {tried.number}")
    sys.stdout.flush()


def _ignore_special(folder: str, names: list[str]) -> list[str]:
    """Names of what cannot be copied: FIFOs; and of large files."""
    paths = {name: os.path.join(folder, name) for name in names}
    return [
        name
        for name, path in paths.items()
        if not os.path.islink(path)
        and not os.path.isdir(path)
        and (not os.path.isfile(path) or os.path.getsize(path) > 1 << 25)
    ]


def run_cases(place: Workplace, options: argparse.Namespace) -> int:
    """Try all cases; returns the number of failures."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failed, started = 0, time.monotonic()
    seen: set[str] = set()
    for variant, number in _chosen(options, started):
        tried = try_case(place, variant, options.seed, number)
        _count(counts[variant.name], tried)
        failed += bool(tried.failures)
        if options.case is not None:
            print(f"{tried.words!a}: status {tried.ended.status}\n{tried.ended.stderr}")
        key = f"{variant.name} {tried.failures} {tried.ended.stderr[-60:]}"
        if tried.failures and key not in seen:  # one of a sort
            seen.add(key)
            tell_failure(place.world.case, tried, options.seed, options.keep)
    print_table("variant", counts, time.monotonic() - started)
    return failed


def _chosen(options: argparse.Namespace, started: float) -> Iterator[tuple[Variant, int]]:
    """The cases to try: all variants as they are, then mutated ones."""
    named = [VARIANTS[options.variant]] if options.variant else []
    if options.case is not None:
        yield named[0], options.case
        return
    for variant in named or VARIANTS.values():
        yield variant, UNMUTATED
    for number in itertools.count():
        is_late = options.minutes and time.monotonic() - started > 60 * options.minutes
        if is_late or (not options.minutes and number >= options.cases):
            return
        yield (named[0] if named else _drawn(options.seed, number)), number


def _count(counts: Counter[str], tried: Tried) -> None:
    counts["cases"] += 1
    if tried.failures:
        counts.update({one.partition(":")[0] for one in tried.failures})
    else:
        counts["fine" if tried.ended.status in (0, 1) else "refused"] += 1


def main() -> int:
    """Read the command line, make the inputs, try the cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000, help="number of cases")
    parser.add_argument("--minutes", type=float, help="time for all cases, instead of --cases")
    parser.add_argument("--variant", choices=sorted(VARIANTS), help="only this variant")
    parser.add_argument("--case", type=int, help="only this case, with --variant")
    parser.add_argument("--keep", type=Path, help="folder for the inputs of failures")
    options = parser.parse_args()
    options.keep = options.keep or Path(tempfile.gettempdir()) / "boxmend-fuzz-failures"
    if options.case is not None and options.variant is None:
        parser.error("--case needs --variant")
    with workplace() as place:
        return 1 if run_cases(place, options) else 0


if __name__ == "__main__":
    sys.exit(main())
