"""Run the tests against small deliberate errors in the source, and print those that go unnoticed.

Each `tools/mutants/<area>.toml` lists mutants: a file below src/boxmend, a piece of its text that
occurs once, what replaces it, and the tests that should fail then. `survives` gives the reason why
no test can fail. No file of the tree is changed: each worker has a copy of src/.

    python tools/mutants.py --only auditing/boxes

This process imports the large third-party packages once and forks a child for each mutant, so that
a child only imports boxmend and runs pytest.
"""

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
PRELOADED = (
    "numpy,scipy.optimize,scipy.special,scipy.stats,torch,torchvision,safetensors.torch,PIL.Image,"
    "pyarrow.parquet,pyarrow.compute,msgspec,cyclopts,rich.console,rich.progress,jinja2,yaml,"
    "hotcoco,pycocotools.cocoeval,cleanlab.object_detection,starlette.applications,uvicorn,"
    "pytest,xdist,hypothesis,hypothesis.strategies,hypothesis.extra.numpy"
)
MIN_KILLED = 0.95  # share of all mutants
TIMEOUT_FACTOR = 6.0  # times what the tests of a mutant took on the unchanged source
SANITY_TIMEOUT_S = 900.0
MTIME_STEP_S = 10  # between two versions of a file, so that no stale bytecode is used
POLL_S = 0.02
PASSED, NOTHING_RAN = 0, 5  # exit statuses of pytest
TIMED_OUT = -1


@dataclass(frozen=True)
class Mutant:
    """One entry of a list."""

    area: str
    file: str  # below src/boxmend
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    @property
    def name(self) -> str:
        """The area, the file and the replaced text, on one line."""
        short = " ".join(f"{self.old!s} -> {self.new!s}".split())
        return f"{self.area}/{self.file}: {short[:110]}"


@dataclass(frozen=True)
class Task:
    """A run of pytest: the tests, and the mutant or None for the unchanged source."""

    tests: tuple[str, ...]
    timeout_s: float
    mutant: Mutant | None = None


@dataclass(frozen=True)
class Result:
    """How a task ended."""

    task: Task
    status: int  # of pytest, or TIMED_OUT
    seconds: float
    output: str


def read_mutants(folder: Path) -> list[Mutant]:
    """Read all lists of a folder."""
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        for entry in tomllib.loads(path.read_text("utf-8")).get("mutant", []):
            mutants.append(Mutant(path.stem, **{**entry, "tests": tuple(entry["tests"])}))
    return mutants


def find_outdated(mutants: Iterable[Mutant], root: Path) -> list[str]:
    """Describe the entries that no longer fit the source or name tests that do not exist."""
    problems = []
    for mutant in mutants:
        path = root / "src" / "boxmend" / mutant.file
        count = path.read_text("utf-8").count(mutant.old) if path.is_file() else 0
        if count != 1:
            problems.append(f"{mutant.name}: the text occurs {count} times in {mutant.file}")
        if mutant.old == mutant.new:
            problems.append(f"{mutant.name}: changes nothing")
        missing = [test for test in mutant.tests if not (root / test.split("::")[0]).is_file()]
        if missing or not mutant.tests:
            problems.append(f"{mutant.name}: no such tests: {', '.join(missing) or '(none named)'}")
    return problems


class Worker:
    """A copy of src/ in which one child after the other runs."""

    def __init__(self, root: Path, home: Path):
        self.root, self.home = root, home
        self.source, self.log = home / "src", home / "log.txt"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "src", self.source, ignore=ignored)
        self.task: Task | None = None
        self._pid, self._started, self._version = 0, 0.0, 0

    def start(self, task: Task) -> None:
        """Apply the mutant and fork a child that runs the tests."""
        self.task, self._started = task, time.monotonic()
        if task.mutant is not None:
            self._apply(task.mutant)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                status = self._run_tests(task.tests)
            except BaseException as error:
                print(f"pytest did not run: {error!r}", file=sys.stderr)
                status = 3
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def poll(self) -> Result | None:
        """Return the result if the child has ended or is past its time."""
        assert self.task is not None
        pid, code = os.waitpid(self._pid, os.WNOHANG)
        seconds = time.monotonic() - self._started
        if pid:
            status = os.waitstatus_to_exitcode(code)
            if status < 0:  # a signal, from a crash of native code
                status = 3
        elif seconds > self.task.timeout_s:
            self.stop()
            status = TIMED_OUT
        else:
            return None
        result = Result(self.task, status, seconds, self.log.read_text("utf-8", "replace"))
        if self.task.mutant is not None:
            shutil.copy2(self._original(self.task.mutant), self._copy(self.task.mutant))
        self.task = None
        return result

    def stop(self) -> None:
        """Kill the child and what it started."""
        if self.task is not None:
            for kill, target in ((os.killpg, self._pid), (os.kill, self._pid)):
                try:
                    kill(target, signal.SIGKILL)
                except ProcessLookupError:  # the child has no group of its own yet
                    continue
            os.waitpid(self._pid, 0)

    def _original(self, mutant: Mutant) -> Path:
        return self.root / "src" / "boxmend" / mutant.file

    def _copy(self, mutant: Mutant) -> Path:
        return self.source / "boxmend" / mutant.file

    def _apply(self, mutant: Mutant) -> None:
        original = self._original(mutant)
        text = original.read_bytes().decode("utf-8")
        self._copy(mutant).write_bytes(text.replace(mutant.old, mutant.new).encode())
        self._version += 1
        moment = original.stat().st_mtime + self._version * MTIME_STEP_S
        os.utime(self._copy(mutant), (moment, moment))

    def _run_tests(self, tests: tuple[str, ...]) -> int:
        os.setsid()
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(self.root)
        cache, temporary = self.home.parent / "bytecode", self.home / "tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        os.environ |= {
            "PYTHONPATH": str(self.source),
            "PYTHONPYCACHEPREFIX": str(cache),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(temporary / "hypothesis"),
        }
        sys.pycache_prefix = str(cache)
        sys.path[0] = str(self.source)  # instead of tools/
        sys.argv = ["pytest"]
        import pytest
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutants", phases=[Phase.explicit, Phase.generate]
        )  # no shrinking
        settings.load_profile("mutants")
        options = ["-x", "-q", "-p", "no:cacheprovider", "-n", "0", "-m", "not slow"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is imported here
        options += ["--hypothesis-seed=0", f"--basetemp={temporary / 'pytest'}"]
        return int(pytest.main([*options, *tests]))


def run_tasks(tasks: Iterable[Task], workers: list[Worker]) -> Iterator[Result]:
    """Run tasks on all workers; yields results as they come."""
    waiting = iter(tasks)
    busy: list[Worker] = []
    try:
        for worker, task in zip(workers, waiting, strict=False):
            worker.start(task)
            busy.append(worker)
        while busy:
            time.sleep(POLL_S)
            for worker in list(busy):
                if (result := worker.poll()) is None:
                    continue
                if (following := next(waiting, None)) is None:
                    busy.remove(worker)
                else:
                    worker.start(following)
                yield result
    finally:
        for worker in busy:
            worker.stop()


def sanity_tasks(mutants: Iterable[Mutant]) -> list[Task]:
    """Return one task for each test file, with all tests of it that are named."""
    named: dict[str, set[str]] = {}
    for mutant in mutants:
        for test in mutant.tests:
            named.setdefault(test.split("::")[0], set()).add(test)
    return [
        Task((file,) if file in tests else tuple(sorted(tests)), SANITY_TIMEOUT_S)
        for file, tests in sorted(named.items())
    ]


def mutant_tasks(
    mutants: Iterable[Mutant], seconds: dict[str, float], timeout_s: float
) -> list[Task]:
    """Return one task for each mutant; `seconds` says how long each test file takes."""
    tasks = []
    for mutant in mutants:
        usual = sum(seconds[file] for file in {test.split("::")[0] for test in mutant.tests})
        tasks.append(Task(mutant.tests, max(timeout_s, TIMEOUT_FACTOR * usual), mutant))
    return tasks


def judge(results: Iterable[Result], number: int, out: TextIO) -> dict[str, list[Mutant]]:
    """Sort mutants by how they ended, printing each as it comes."""
    sorted_mutants: dict[str, list[Mutant]] = {
        "killed": [],
        "survived": [],
        "explained": [],
        "not run": [],
    }
    for k, result in enumerate(results, 1):
        mutant = result.task.mutant
        assert mutant is not None
        outcome = "killed"
        if result.status == NOTHING_RAN:
            outcome = "not run"
        elif result.status == PASSED:
            outcome = "explained" if mutant.survives else "survived"
        sorted_mutants[outcome].append(mutant)
        print(f"{k:>4}/{number} {outcome:<9} {result.seconds:6.1f} s  {mutant.name}", file=out)
        out.flush()
    return sorted_mutants


def summarise(by_outcome: dict[str, list[Mutant]], is_whole: bool, out: TextIO) -> int:
    """Print the survivors and the counts; returns the exit status."""
    for outcome, remark in (
        ("survived", "no test fails"),
        ("not run", "all its tests are slow or deselected"),
    ):
        for mutant in by_outcome[outcome]:
            print(f"{outcome}: {mutant.name} ({remark}: {' '.join(mutant.tests)})", file=out)
    for mutant in by_outcome["explained"]:
        print(f"explained: {mutant.name} ({mutant.survives})", file=out)
    for mutant in by_outcome["killed"]:
        if mutant.survives:
            print(f"killed, although explained: {mutant.name}; remove `survives`", file=out)
    total = sum(map(len, by_outcome.values()))
    killed = len(by_outcome["killed"])
    share = killed / total if total else 0.0
    counts = ", ".join(f"{len(mutants)} {outcome}" for outcome, mutants in by_outcome.items())
    print(f"{total} mutants: {counts}; {100 * share:.1f}% killed", file=out)
    is_low = is_whole and share < MIN_KILLED
    return int(bool(by_outcome["survived"] or by_outcome["not run"] or is_low))


def run_mutants(
    mutants: list[Mutant], root: Path, jobs: int, timeout_s: float
) -> dict[str, list[Mutant]] | None:
    """Run all mutants, after a run of their tests on the unchanged source; None if that fails."""
    out = sys.stdout
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        workers = [Worker(root, Path(folder, f"worker{k}")) for k in range(jobs)]
        checks = sanity_tasks(mutants)
        seconds: dict[str, float] = {}
        for result in run_tasks(checks, workers):
            file = result.task.tests[0].split("::")[0]
            seconds[file] = result.seconds
            print(f"{len(seconds):>4}/{len(checks)} unchanged {result.seconds:6.1f} s  {file}")
            out.flush()
            if result.status not in (PASSED, NOTHING_RAN):
                print(f"{result.output[-3000:]}\n{file} fails on the unchanged source", file=out)
                return None
        tasks = mutant_tasks(mutants, seconds, timeout_s)
        return judge(run_tasks(tasks, workers), len(tasks), out)


def preload(names: str) -> None:
    """Import packages that children would otherwise import one by one; absent ones are skipped."""
    for name in filter(None, names.split(",")):
        try:
            importlib.import_module(name)
        except ImportError:
            continue


def main() -> int:
    """Run the mutants that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2, help="children at a time")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a mutant, at least")
    parser.add_argument(
        "--only", action="append", help="part of AREA/FILE: TEXT; runs those mutants (repeatable)"
    )
    parser.add_argument("--check", action="store_true", help="only check that the lists fit")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of src/, tests/ and tools/")
    parser.add_argument("--preload", default=PRELOADED, help="packages to import before forking")
    options = parser.parse_args()
    root = options.root.resolve()
    listed = read_mutants(root / "tools/mutants")
    parts = options.only or [""]
    mutants = [one for one in listed if any(part in one.name for part in parts)]
    if problems := find_outdated(mutants, root):
        print("\n".join(problems))
        return 1
    if not mutants:
        print(f"no mutant has {' or '.join(map(repr, parts))} in its name")
        return 1
    if options.check:
        print(f"{len(mutants)} mutants apply")
        return 0
    preload(options.preload)
    outcomes = run_mutants(mutants, root, options.jobs, options.timeout)
    return 1 if outcomes is None else summarise(outcomes, len(mutants) == len(listed), sys.stdout)


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # a forked child has no threads of its parent
    sys.exit(main())
