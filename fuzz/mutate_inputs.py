"""Run every command on mutated inputs and check that each ends with a result or a clear error.

    python fuzz/mutate_inputs.py --cases 1000 --seed 1
    python fuzz/mutate_inputs.py --minutes 5 --variant apply
    python fuzz/mutate_inputs.py --seed 1 --variant apply --case 17   # repeat one case

Each case mutates a small valid input and runs a command in a forked process. A failure is one of:
an unexpected exception, a status other than 0 to 3, more than 20 seconds, more than 2 GB of memory,
an output that is incomplete or that boxmend cannot read, leftovers, a changed input, or a file
written outside of the output. For each failure, the command that repeats it is printed and its
input is kept. The exit status is 1 if there was a failure.
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
from children import ChildResult, Task
from mutations import mutate
from rereading import READERS, visit_server
from snapshots import Snapshot, changed_paths, find_leftovers, match_patterns, snapshot
from variant import Variant
from variants import VARIANTS
from workplaces import Workplace, print_table, workplace

UNMUTATED = -1  # number of the case with the original input
STATUSES = {children.TRACEBACK: "traceback", children.UNREADABLE: "unreadable output"}
STATUSES |= {children.OUTSIDE: "written outside"}
CONTINUED = ("resume", "bench-audit-suite")  # keep what they finished, also if they fail later
REVERT_UNFINISHED = "run revert again"  # message of a `revert` that has restored only some files
TRACEBACK_START = "Traceback (most recent call last)"


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case."""

    variant: Variant
    number: int
    description: str  # of the mutations
    tokens: list[str]
    child: ChildResult
    failures: list[str]


def try_case(place: Workplace, variant: Variant, seed: int, number: int) -> CaseResult:
    """Mutate an input of a variant and run its command."""
    rng = random.Random(f"{seed} {variant.name} {number}")
    case, folder = place.world.case, place.world.lay_out(tuple(variant.parts.split()))
    description, tokens = "as it was", shlex.split(variant.line)
    if number != UNMUTATED:
        tokens += shlex.split(rng.choice(variant.options))
        description, more = _mutate_input(folder, variant, rng)
        tokens += more
    before = snapshot(case)
    reader = READERS.get(variant.reread)
    begin = visit_server if variant.name == "review" else None
    child = place.run(Task(case, tokens, reader, begin), torch=variant.torch)
    failures = _find_failures(variant, tokens, child, before, snapshot(case))
    if number == UNMUTATED and child.status not in (0, 1):
        failures.append(f"valid input ended with {child.status}")
    return CaseResult(variant, number, description, tokens, child, failures)


def _mutate_input(folder: Path, variant: Variant, rng: random.Random) -> tuple[str, list[str]]:
    """Mutate one or two files, or an option; return a description and additional tokens."""
    if variant.numbers and rng.random() < 0.1:
        option = rng.choice(variant.numbers.split())
        value = str(odd_values.draw_number(rng))[:100]
        return f"{option} {value}", [option, value]
    changes = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        groups = [_find_files(folder, pattern) for pattern in variant.targets.split()]
        if groups := [group for group in groups if group]:
            changes.append(mutate(rng.choice(groups), rng))
    return "; ".join(changes), []


def _find_files(folder: Path, pattern: str) -> list[Path]:
    """Return the regular files that match a pattern, in all subfolders of its folder."""
    below, _, name = pattern.rpartition("/")
    return [
        path for path in (folder / below).rglob(name) if path.is_file() and not path.is_symlink()
    ]


def _find_failures(
    variant: Variant, tokens: list[str], child: ChildResult, before: Snapshot, after: Snapshot
) -> list[str]:
    failures = _find_bad_endings(child)
    # `check` finds errors (1) and still succeeds, but --fix writes no copy that would have errors.
    succeeded = child.status == 0 or (child.status == 1 and "--fix" not in tokens)
    paths = changed_paths(before, after)
    outputs = [path for path in paths if path == "out" or path.startswith(("out/", "out."))]
    inputs = [path for path in paths if path.startswith("in/")]
    if succeeded or variant.name in CONTINUED or REVERT_UNFINISHED in child.stderr:
        allowed = tuple(f"in/{pattern}" for pattern in variant.may_change.split())
        inputs = [path for path in inputs if path not in match_patterns(inputs, allowed)]
    if inputs:
        failures.append(f"input changed: {inputs[0]!a}")
    is_unfinished = variant.reread == "run" and "out/run.json" in after
    if not succeeded and outputs and not is_unfinished:
        failures.append(f"output left: {outputs[0]!a}")
    is_written = any(token == "out" or token.startswith("out.") for token in tokens)
    if succeeded and is_written and not outputs:
        failures.append("no output")
    if is_unfinished:
        after = {path: content for path, content in after.items() if path != "out/.lock"}
    if left := [path for path in find_leftovers(after) if path not in before]:
        failures.append(f"leftover: {left[0]!a}")
    others = [path for path in paths if not path.startswith(("in/", "out", "tmp/"))]
    others += [path for path in paths if path.startswith("tmp/") and child.status in (0, 1, 2)]
    if unknown := [path for path in others if path not in left]:
        failures.append(f"other file: {unknown[0]!a}")
    return failures


def _find_bad_endings(child: ChildResult) -> list[str]:
    if child.hung:
        return ["hang"]
    if child.signal:
        return [f"signal {child.signal}"]
    failures = []
    if child.status not in (0, 1, 2, 3):
        failures.append(STATUSES.get(child.status or 0, f"status {child.status}"))
    elif TRACEBACK_START in child.stderr:
        failures.append("traceback")
    elif child.status in (2, 3) and not child.stderr.strip() and not child.stdout.strip():
        failures.append("no message")
    if child.peak_bytes > children.MAX_MEMORY_BYTES or "out of memory" in child.stderr:
        failures.append("memory")
    return failures


def _draw_variant(seed: int, number: int) -> Variant:
    """Draw the variant of a case by weight."""
    rng = random.Random(f"{seed} {number}")
    names = list(VARIANTS)
    return VARIANTS[rng.choices(names, [VARIANTS[name].weight for name in names])[0]]


def report_failure(case: Path, result: CaseResult, seed: int, keep: Path) -> None:
    """Print how to repeat a failure and keep the folder of its case."""
    name = result.variant.name
    kept = keep / f"{name}-{seed}-{result.number}"
    if not kept.exists():
        shutil.copytree(case, kept, symlinks=True, ignore=_ignore_special)
        (kept / "stderr").write_text(result.child.stderr, errors="backslashreplace")
    last = [line for line in result.child.stderr.splitlines() if line.strip()][-1:]
    print(f"FAILED {', '.join(result.failures)}: {result.description!a}: {''.join(last)[:200]!a}")
    print(f"  boxmend {shlex.join(result.tokens)!a}, in {kept}")
    print(f"  python fuzz/mutate_inputs.py --seed {seed} --variant {name} --case {result.number}")
    sys.stdout.flush()


def _ignore_special(folder: str, names: list[str]) -> list[str]:
    """Return the names of special files, which cannot be copied, and of large files."""
    paths = {name: os.path.join(folder, name) for name in names}
    return [
        name
        for name, path in paths.items()
        if not os.path.islink(path)
        and not os.path.isdir(path)
        and (not os.path.isfile(path) or os.path.getsize(path) > 1 << 25)
    ]


def run_cases(place: Workplace, options: argparse.Namespace) -> int:
    """Try all cases; return the number of failures."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    failed, started = 0, time.monotonic()
    seen: set[str] = set()
    for variant, number in _choose_cases(options, started):
        result = try_case(place, variant, options.seed, number)
        _count(counts[variant.name], result)
        failed += bool(result.failures)
        if options.case is not None:
            print(f"{result.description!a}: status {result.child.status}\n{result.child.stderr}")
        key = f"{variant.name} {result.failures} {result.child.stderr[-60:]}"
        if result.failures and key not in seen:  # one of each kind
            seen.add(key)
            report_failure(place.world.case, result, options.seed, options.keep)
    print_table("variant", counts, time.monotonic() - started)
    return failed


def _choose_cases(options: argparse.Namespace, started: float) -> Iterator[tuple[Variant, int]]:
    """Yield the cases to try: the original inputs of all variants, then mutated ones."""
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
        yield (named[0] if named else _draw_variant(options.seed, number)), number


def _count(counts: Counter[str], result: CaseResult) -> None:
    counts["cases"] += 1
    if result.failures:
        counts.update({failure.partition(":")[0] for failure in result.failures})
    else:
        counts["fine" if result.child.status in (0, 1) else "refused"] += 1


def main() -> int:
    """Read the command line, make the inputs and try the cases."""
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
