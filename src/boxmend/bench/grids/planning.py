"""From the name of a table to cells with their folders and jobs, ready to be run."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from boxmend.bench.grids.cells import Cell, cells_of, chosen
from boxmend.bench.grids.jobs import Job, rates_told, save_job
from boxmend.bench.grids.layouts import layout
from boxmend.bench.grids.scales import Scale, Sources, fitted, scale, settings_of, sources
from boxmend.dataset import Dataset
from boxmend.errors import DataError, UsageError
from boxmend.fingerprint import fingerprint
from boxmend.formats import load
from boxmend.report.texts import shown


@dataclass(frozen=True)
class Wishes:
    """Which part of which grid is to be run, on what, and where its results go."""

    name: str
    scale: str
    out: Path = Path("bench")
    seeds: tuple[int, ...] = (0,)
    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    weights: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings by dotted names, for all cells."""
    keep_weights: bool = False


@dataclass(frozen=True)
class Plan:
    """The cells to run, in their order, under one folder."""

    root: Path
    """OUT/SCALE."""
    cells: tuple[Cell, ...]

    def folder(self, cell: Cell) -> Path:
        """The folder of a cell."""
        return self.root / "cells" / cell.name


def planned(wishes: Wishes) -> Plan:
    """Choose the cells; looks at no data and writes nothing."""
    which = scale(wishes.scale)
    if not wishes.seeds or min(wishes.seeds) < 0:
        raise UsageError("--seeds needs numbers from 0 on, like 0,1,2")
    cells = cells_of(fitted(which, layout(wishes.name)), wishes.seeds)
    if not cells:
        raise UsageError(f"{wishes.name} has nothing to run at --scale {wishes.scale}")
    kept = chosen(cells, only=wishes.only, methods=wishes.methods)
    for cell in kept:  # wrong settings are told before anything is made
        settings_of(cell, which, wishes.weights, wishes.changes)
    return Plan(wishes.out / which.name, tuple(kept))


def prepare(plan: Plan, wishes: Wishes) -> None:
    """Look at the data, and save the job of every cell in its folder.

    A UsageError tells of a cell that was run with other settings or data, and what differs; a
    DataError, of data that no cell could be trained or scored on.
    """
    which = scale(wishes.scale)
    _ensure_folder(wishes.out)
    given = sources(which, plan.root, wishes.data, wishes.val)
    hashes = _hashes(given)
    weights = _hash_of_file(wishes.weights)
    for cell in plan.cells:
        job = _job(cell, which, wishes, given)
        job = msgspec.structs.replace(
            job, train_sha256=hashes[0], val_sha256=hashes[1], weights_sha256=weights
        )
        save_job(plan.folder(cell), job)


def _job(cell: Cell, which: Scale, wishes: Wishes, given: Sources) -> Job:
    settings = settings_of(cell, which, wishes.weights, wishes.changes)
    return Job(
        cell=cell.name,
        scale=which.name,
        labels=cell.labels,
        boxes=cell.boxes,
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
        names = [", ".join(shown(name) for name in one.label_names[:5]) for one in (train, val)]
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
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"--weights {path}: cannot be read ({error.strerror})") from error
