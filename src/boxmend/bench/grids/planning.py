"""From the names of tables to cells with their folders and jobs, ready to be run."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from boxmend.bench.grids.cells import Cell, cells_of, chosen, is_chosen
from boxmend.bench.grids.jobs import Job, State, rates_told, save_job, state_of
from boxmend.bench.grids.layouts import LAYOUTS, layout
from boxmend.bench.grids.previous_results import (
    PreviousResult,
    match_previous,
    read_previous,
    refuse_differing,
)
from boxmend.bench.grids.priorities import by_priority, priority, with_priority
from boxmend.bench.grids.scales import Scale, Sources, fitted, scale, settings_of, sources
from boxmend.data.dataset import Dataset
from boxmend.data.files.reading import open_file
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.errors import DataError, UsageError
from boxmend.web.text import display_text


@dataclass(frozen=True)
class GridRequest:
    """Which part of which grids is to be run, on what, and where its results go."""

    names: tuple[str, ...]
    """Of tables, whose cells are run together."""
    scale: str
    out: Path = Path("bench")
    seeds: tuple[int, ...] = (0,)
    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    worth: tuple[str, ...] = ()
    done: tuple[Path, ...] = ()
    """Files of results from elsewhere, whose cells are not run again."""
    ignore_differing: bool = False
    """Run cells anew whose lines there are of other settings or data."""
    data: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    weights: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted names, for all cells."""
    keep_weights: bool = False
    keep_figures: bool | None = None
    """Whether cells leave figures and a picture; by default those of seed 0."""


@dataclass(frozen=True)
class Plan:
    """The cells to run, in their order, under one folder."""

    root: Path
    """OUT/SCALE."""
    cells: tuple[Cell, ...]
    earlier: Mapping[str, PreviousResult] = field(default_factory=dict)
    """By the names of cells that are not run here: the lines that stand for them."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Cells that have a line and are trained all the same, and the one that needs their run."""
    warnings: tuple[str, ...] = ()
    """About the files of results from elsewhere."""

    def folder(self, cell: Cell) -> Path:
        """The folder of a cell."""
        return self.root / "cells" / cell.name


def planned(wishes: GridRequest) -> Plan:
    """Choose the cells, those worth most first; looks at no data and writes nothing."""
    which = scale(wishes.scale)
    if not wishes.names:
        raise UsageError(f"name a table to run: {', '.join(LAYOUTS)}")
    if not wishes.seeds or min(wishes.seeds) < 0:
        raise UsageError("--seeds needs numbers from 0 on, like 0,1,2")
    found: dict[Cell, None] = {}
    for name in wishes.names:
        cells = cells_of(fitted(which, layout(name)), wishes.seeds)
        if not cells:
            raise UsageError(f"{name} has nothing to run at --scale {wishes.scale}")
        found |= dict.fromkeys(cells)
    kept = chosen(list(found), only=wishes.only, methods=wishes.methods)
    kept = with_priority(by_priority(kept), wishes.worth)
    for cell in kept:  # wrong settings are told before anything is made
        settings_of(cell, which, wishes.weights, wishes.changes)
    return Plan(wishes.out / which.name, tuple(kept))


def prepare(plan: Plan, wishes: GridRequest) -> Plan:
    """Look at the data, and save the job of every cell that is left to run in its folder.

    Gives the plan without the cells that have a line in `wishes.done`. A UsageError tells of a cell
    that was run with other settings or data, and what differs; a DataError, of data that no cell
    could be trained or scored on.
    """
    which = scale(wishes.scale)
    _ensure_folder(wishes.out)
    given = sources(which, plan.root, wishes.data, wishes.val)
    jobs = _jobs(plan, wishes, given, _hashes(given))
    plan = _without_earlier(plan, wishes, jobs)
    for cell in plan.cells:
        save_job(plan.folder(cell), jobs[cell])
    return plan


def looked_up(plan: Plan, wishes: GridRequest) -> Plan:
    """Give what `prepare` would, as far as it can be told without writing anything.

    Data are compared where they are named; drawn ones are always the same.
    """
    if not wishes.done:
        return plan
    given = Sources(wishes.data, wishes.val)
    hashes = _hashes(given) if wishes.data and wishes.val else ("", "")
    return _without_earlier(plan, wishes, _jobs(plan, wishes, given, hashes))


def by_name(plan: Plan, wishes: GridRequest) -> Plan:
    """Give the plan with lines found by the names of cells alone, for who looks without data."""
    lines, warnings = read_previous(wishes.done, wishes.scale)
    names = {cell.name for cell in plan.cells}
    earlier = {name: here[-1] for name, here in lines.items() if name in names}
    return replace(plan, earlier=earlier, warnings=tuple(warnings))


def _without_earlier(plan: Plan, wishes: GridRequest, jobs: Mapping[Cell, Job]) -> Plan:
    """Leave out cells that have a line elsewhere, unless a cell that is left needs their run."""
    lines, warnings = read_previous(wishes.done, wishes.scale)
    found = match_previous(jobs, lines)
    is_here = {cell: state_of(plan.folder(cell)) is State.DONE for cell in plan.cells}
    for cell in plan.cells:
        if is_here[cell]:  # what was done here counts, and is checked when its job is saved
            found.taken.pop(cell.name, None)
            found.differing.pop(cell.name, None)
    if not wishes.ignore_differing:
        refuse_differing(found)
    left = [
        cell
        for cell in plan.cells
        if cell.name not in found.taken
        and is_chosen(cell, only=wishes.only, methods=wishes.methods)
        and (not wishes.worth or priority(cell) in wishes.worth)
    ]
    needing = {cell.needs: cell.name for cell in left if cell.needs is not None}
    return replace(
        plan,
        cells=tuple(cell for cell in plan.cells if cell in left or cell in needing),
        earlier={name: one for name, one in found.taken.items() if name not in _names(needing)},
        again={cell.name: by for cell, by in needing.items() if cell.name in found.taken},
        warnings=tuple(warnings),
    )


def _names(cells: Iterable[Cell]) -> set[str]:
    return {cell.name for cell in cells}


def _jobs(
    plan: Plan, wishes: GridRequest, given: Sources, hashes: tuple[str, str]
) -> dict[Cell, Job]:
    which, weights = scale(wishes.scale), _hash_of_file(wishes.weights)
    return {
        cell: msgspec.structs.replace(
            _job(cell, which, wishes, given),
            train_sha256=hashes[0],
            val_sha256=hashes[1],
            weights_sha256=weights,
        )
        for cell in plan.cells
    }


def _job(cell: Cell, which: Scale, wishes: GridRequest, given: Sources) -> Job:
    settings = settings_of(cell, which, wishes.weights, wishes.changes)
    return Job(
        cell=cell.name,
        scale=which.name,
        labels=cell.labels,
        boxes=cell.boxes,
        presence=cell.presence,
        noise_seed=cell.noise.seed,
        noise_folder=cell.noise_folder,
        method=cell.method,
        variant=dict(cell.variant),
        seed=cell.seed,
        settings=asdict(settings),
        told=rates_told(settings.method, settings),
        train=_absolute(given.train),
        val=_absolute(given.val),
        train_sha256="",
        val_sha256="",
        needs=None if cell.needs is None else cell.needs.name,
        keep_weights=wishes.keep_weights,
        keep_figures=(cell.seed == 0 if wishes.keep_figures is None else wishes.keep_figures),
    )


def _absolute(addresses: Sequence[str]) -> list[str]:
    return [str(Path(one).absolute()) for one in addresses]  # PATH or PATH:SPLIT


def _ensure_folder(out: Path) -> None:
    """Refuse a place where no folder can be made, before anything is."""
    there = next(one for one in (out.absolute(), *out.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        reason = "may not be written to" if there.is_dir() else "is no folder"
        raise UsageError(f"--out {out}: {there} {reason}; name another folder")


def _hashes(given: Sources) -> tuple[str, str]:
    """Hash the data; what would let every cell fail, perhaps after its training, is told now."""
    train, val = _loaded(given.train, "--data"), _loaded(given.val, "--val")
    if not set(train.label_names) & set(val.label_names):
        names = [
            ", ".join(display_text(name) for name in one.label_names[:5]) for one in (train, val)
        ]
        raise DataError(
            f"--val {' '.join(given.val)}: has no class of the training data, so nothing could be "
            f"scored (--data has {names[0]}; --val has {names[1]}); classes go by their names"
        )
    return fingerprint(train), fingerprint(val)


def _loaded(addresses: Sequence[str], option: str) -> Dataset:
    dataset, told = load(*addresses), f"{option} {' '.join(addresses)}"
    if not len(dataset):
        raise DataError(f"{told}: there are no annotations")
    paths = dataset.images.paths
    if not any(os.path.exists(path) for path in (*paths[:1], *paths[-1:])):
        missing = f", like {paths[0]}" if paths and paths[0] else ""
        raise DataError(f"{told}: its images are not there{missing}; bring them there")
    return dataset


def _hash_of_file(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"--weights {path}: cannot be read ({error.strerror or error})") from error
