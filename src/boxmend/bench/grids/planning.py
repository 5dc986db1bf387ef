"""Plan a grid: from the names of tables to cells with their folders and jobs."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from boxmend.bench.grids.cells import Cell, choose_cells, is_requested, list_table_cells
from boxmend.bench.grids.jobs import Job, State, describe_rates, save_job, state_of
from boxmend.bench.grids.layouts import LAYOUTS, get_layout
from boxmend.bench.grids.previous_results import (
    PreviousResult,
    match_previous,
    read_previous,
    refuse_differing,
)
from boxmend.bench.grids.priorities import priority, sort_by_priority, with_priority
from boxmend.bench.grids.scales import (
    Scale,
    Sources,
    cell_settings,
    find_sources,
    fit_layout,
    get_scale,
)
from boxmend.data.dataset import Dataset
from boxmend.data.files.reading import open_file
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.errors import DataError, UsageError
from boxmend.web.text import display_text


@dataclass(frozen=True)
class GridRequest:
    """The cells to run, their data and settings, and the folder of their results."""

    names: tuple[str, ...]
    """Names of tables; their cells run together."""
    scale: str
    out: Path = Path("bench")
    seeds: tuple[int, ...] = (0,)
    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()
    """Priorities of cells, see `priorities.priority`; if empty, all."""
    done: tuple[Path, ...] = ()
    """Files of previous results; their cells do not run again."""
    ignore_differing: bool = False
    """Run cells again whose previous results have other settings or data."""
    data: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    weights: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted names, for all cells."""
    keep_weights: bool = False
    keep_figures: bool | None = None
    """Whether cells write figures and a picture; by default those of seed 0."""


@dataclass(frozen=True)
class Plan:
    """The cells to run, in order, and the folder of their results."""

    root: Path
    """The folder OUT/SCALE."""
    cells: tuple[Cell, ...]
    previous: Mapping[str, PreviousResult] = field(default_factory=dict)
    """Previous results of cells that do not run, by cell name."""
    retrained: Mapping[str, str] = field(default_factory=dict)
    """Cells that have a previous result but train again, and the cell that needs their run."""
    warnings: tuple[str, ...] = ()
    """Warnings about the files of previous results."""

    def folder(self, cell: Cell) -> Path:
        """Return the folder of a cell."""
        return self.root / "cells" / cell.name


def make_plan(request: GridRequest) -> Plan:
    """Choose the cells and sort them by priority; reads no data and writes nothing."""
    scale = get_scale(request.scale)
    if not request.names:
        raise UsageError(f"name a table to run: {', '.join(LAYOUTS)}")
    if not request.seeds or min(request.seeds) < 0:
        raise UsageError("--seeds needs numbers from 0 on, like 0,1,2")
    cells: dict[Cell, None] = {}
    for name in request.names:
        added = list_table_cells(fit_layout(scale, get_layout(name)), request.seeds)
        if not added:
            raise UsageError(f"{name} has nothing to run at --scale {request.scale}")
        cells |= dict.fromkeys(added)
    kept = choose_cells(list(cells), only=request.only, methods=request.methods)
    kept = with_priority(sort_by_priority(kept), request.priorities)
    for cell in kept:  # report wrong settings before anything is written
        cell_settings(cell, scale, request.weights, request.changes)
    return Plan(request.out / scale.name, tuple(kept))


def prepare(plan: Plan, request: GridRequest) -> Plan:
    """Read the data and save the job of every cell that is left to run in its folder.

    Returns the plan without the cells that have a result in `request.done`. Raises a UsageError
    where a cell was run with other settings or data, and a DataError for data on which no cell
    could be trained or scored.
    """
    scale = get_scale(request.scale)
    _ensure_folder(request.out)
    sources = find_sources(scale, plan.root, request.data, request.val)
    jobs = _make_jobs(plan, request, sources, _hash_sources(sources))
    plan = _leave_out_previous(plan, request, jobs)
    for cell in plan.cells:
        save_job(plan.folder(cell), jobs[cell])
    return plan


def preview(plan: Plan, request: GridRequest) -> Plan:
    """Return the plan that `prepare` would return, as far as possible without writing.

    Data are compared if the request names them; drawn data are always the same.
    """
    if not request.done:
        return plan
    sources = Sources(request.data, request.val)
    hashes = _hash_sources(sources) if request.data and request.val else ("", "")
    return _leave_out_previous(plan, request, _make_jobs(plan, request, sources, hashes))


def match_by_name(plan: Plan, request: GridRequest) -> Plan:
    """Return the plan with the previous results that have the names of its cells.

    Settings and data are not compared.
    """
    lines, warnings = read_previous(request.done, request.scale)
    names = {cell.name for cell in plan.cells}
    previous = {name: results[-1] for name, results in lines.items() if name in names}
    return replace(plan, previous=previous, warnings=tuple(warnings))


def _leave_out_previous(plan: Plan, request: GridRequest, jobs: Mapping[Cell, Job]) -> Plan:
    """Leave out cells with a previous result, unless a remaining cell needs their run."""
    lines, warnings = read_previous(request.done, request.scale)
    previous = match_previous(jobs, lines)
    is_done_here = {cell: state_of(plan.folder(cell)) is State.DONE for cell in plan.cells}
    for cell in plan.cells:
        if is_done_here[cell]:  # its own result counts; `save_job` compares it
            previous.matching.pop(cell.name, None)
            previous.differing.pop(cell.name, None)
    if not request.ignore_differing:
        refuse_differing(previous)
    left = [
        cell
        for cell in plan.cells
        if cell.name not in previous.matching
        and is_requested(cell, only=request.only, methods=request.methods)
        and (not request.priorities or priority(cell) in request.priorities)
    ]
    needed = {cell.needs: cell.name for cell in left if cell.needs is not None}
    matching = previous.matching
    return replace(
        plan,
        cells=tuple(cell for cell in plan.cells if cell in left or cell in needed),
        previous={name: line for name, line in matching.items() if name not in _list_names(needed)},
        retrained={cell.name: by for cell, by in needed.items() if cell.name in matching},
        warnings=tuple(warnings),
    )


def _list_names(cells: Iterable[Cell]) -> set[str]:
    return {cell.name for cell in cells}


def _make_jobs(
    plan: Plan, request: GridRequest, sources: Sources, hashes: tuple[str, str]
) -> dict[Cell, Job]:
    scale, weights = get_scale(request.scale), _hash_file(request.weights)
    return {
        cell: msgspec.structs.replace(
            _make_job(cell, scale, request, sources),
            train_sha256=hashes[0],
            val_sha256=hashes[1],
            weights_sha256=weights,
        )
        for cell in plan.cells
    }


def _make_job(cell: Cell, scale: Scale, request: GridRequest, sources: Sources) -> Job:
    settings = cell_settings(cell, scale, request.weights, request.changes)
    return Job(
        cell=cell.name,
        scale=scale.name,
        labels=cell.labels,
        boxes=cell.boxes,
        presence=cell.presence,
        noise_seed=cell.noise.seed,
        noise_folder=cell.noise_folder,
        method=cell.method,
        variant=dict(cell.variant),
        seed=cell.seed,
        settings=asdict(settings),
        known_rates=describe_rates(settings.method, settings),
        train=_make_absolute(sources.train),
        val=_make_absolute(sources.val),
        train_sha256="",
        val_sha256="",
        needs=None if cell.needs is None else cell.needs.name,
        keep_weights=request.keep_weights,
        keep_figures=(cell.seed == 0 if request.keep_figures is None else request.keep_figures),
    )


def _make_absolute(addresses: Sequence[str]) -> list[str]:
    return [str(Path(address).absolute()) for address in addresses]  # PATH or PATH:SPLIT


def _ensure_folder(out: Path) -> None:
    """Raise a UsageError where the folder cannot be made, before any work."""
    whole = out.absolute()
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        reason = "is not writable" if existing.is_dir() else "is not a folder"
        raise UsageError(f"--out {out}: {existing} {reason}; name another folder")


def _hash_sources(sources: Sources) -> tuple[str, str]:
    """Hash the data; raises a DataError now for data on which every cell would fail later."""
    train, val = _load_sources(sources.train, "--data"), _load_sources(sources.val, "--val")
    if not set(train.label_names) & set(val.label_names):
        names = [
            ", ".join(display_text(name) for name in data.label_names[:5]) for data in (train, val)
        ]
        raise DataError(
            f"--val {' '.join(sources.val)}: has no class of the training data, so nothing could "
            f"be scored (--data has {names[0]}; --val has {names[1]}); classes are matched by name"
        )
    return fingerprint(train), fingerprint(val)


def _load_sources(addresses: Sequence[str], option: str) -> Dataset:
    dataset, address = load(*addresses), f"{option} {' '.join(addresses)}"
    if not len(dataset):
        raise DataError(f"{address}: there are no annotations")
    paths = dataset.images.paths
    if not any(os.path.exists(path) for path in (*paths[:1], *paths[-1:])):
        example = f", like {paths[0]}" if paths and paths[0] else ""
        raise DataError(f"{address}: its images are missing{example}; copy them there")
    return dataset


def _hash_file(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        with open_file(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"--weights {path}: cannot be read ({error.strerror or error})") from error
