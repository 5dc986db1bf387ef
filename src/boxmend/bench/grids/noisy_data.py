"""The training data of cells: noisy data, made once for all methods, and mended data."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from boxmend.bench.grids.cells import noise_settings
from boxmend.bench.grids.jobs import RUN_FOLDER, Job, State, state_of
from boxmend.data.dataset import Dataset
from boxmend.data.files.digests import verify_json
from boxmend.data.files.locks import wait_for_lock
from boxmend.data.files.reading import read_record
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import RECORD_FILE, disturb, write_noisy
from boxmend.errors import BoxmendError, DataError
from boxmend.repair.apply import apply


def noisy_data(root: Path, job: Job) -> list[str]:
    """Return the addresses of the noisy data of a cell; make the data if they do not exist.

    One process makes them while others wait. If the data exist without their images, for example
    after a move, they are made again and must be equal.
    """
    folder = root / "noise" / job.noise_folder
    with wait_for_lock(folder.with_name(f".{folder.name}.lock")):
        if not _is_usable(folder):
            _make_noisy_data(folder, job)
    return addresses_in(folder)


def mended_data(root: Path, job: Job) -> list[str]:
    """Return the addresses of the annotations that the needed cell mended."""
    assert job.needs is not None
    before = root / "cells" / job.needs
    if state_of(before) is not State.DONE:
        raise BoxmendError(f"{job.cell} needs {job.needs}, which is not done; run it first")
    noisy = noisy_data(root, job)
    folder = root / "mended" / job.needs
    with wait_for_lock(folder.with_name(f".{folder.name}.lock")):
        if folder.is_dir() and not _has_images(_move_addresses(folder, root, job, noisy)):
            shutil.rmtree(folder)
        if not folder.is_dir():
            apply(before / RUN_FOLDER, folder, data=noisy)
    return _move_addresses(folder, root, job, noisy)


def addresses_in(folder: Path) -> list[str]:
    """Return the addresses of the datasets in a folder that `write_noisy` wrote."""
    places = (_get_dataset_address(Path(name)) for name in sorted(_read_digests(folder)))
    return list(dict.fromkeys(str(folder / place) for place in places if place is not None))


def truth_of(root: Path, job: Job) -> Path:
    """Return the folder with the truth about the noisy data of a cell."""
    return root / "noise" / job.noise_folder


def clean_data(addresses: Iterable[str], sha256: str, what: str) -> Dataset:
    """Load clean data; raise a DataError if they differ from those at the start of the grid."""
    all_addresses = list(addresses)
    dataset = load(*all_addresses)
    if fingerprint(dataset) != sha256:
        raise DataError(
            f"{' '.join(all_addresses)}: the {what} changed since the grid was started; "
            "restore them, or name another folder by --out"
        )
    return dataset


def _move_addresses(folder: Path, root: Path, job: Job, noisy: list[str]) -> list[str]:
    """Return the addresses in `folder` that correspond to those of the noisy data."""
    base = root / "noise" / job.noise_folder
    return [str(folder / Path(address).relative_to(base)) for address in noisy]


def _is_usable(folder: Path) -> bool:
    return folder.is_dir() and _has_images(addresses_in(folder))


def _has_images(addresses: list[str]) -> bool:
    try:
        paths = load(*addresses).images.paths
    except BoxmendError:
        return False
    return bool(paths) and all(os.path.exists(path) for path in (paths[0], paths[-1]))


def _make_noisy_data(folder: Path, job: Job) -> None:
    settings = noise_settings(job.labels, job.boxes, job.presence, job.noise_seed)
    clean = clean_data(job.train, job.train_sha256, "training data")
    temporary = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    write_noisy(disturb(clean, settings), settings, temporary, WriteOptions())
    if folder.is_dir():
        if _read_digests(folder) != _read_digests(temporary):
            raise DataError(
                f"{folder}: its images are missing, and new noise on the same data is different; "
                "name another folder by --out"
            )
        shutil.rmtree(folder)
    temporary.rename(folder)


def _read_digests(folder: Path) -> dict[str, str]:
    """Return the annotation files of a noisy dataset with their hashes."""
    path = folder / RECORD_FILE
    try:
        content = verify_json(path, read_record(path), f"remove {folder}")
        record: Any = msgspec.json.decode(content)
        return {str(name): str(digest) for name, digest in record["files"].items()}
    except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); remove {folder}") from error


def _get_dataset_address(file: Path) -> Path | None:
    """Return the address of the dataset of a file, relative to the folder; None if it has none."""
    if file.suffix in (".json", ".yaml", ".yml"):  # COCO, YOLO
        return file
    if "Annotations" in file.parts:  # VOC
        return Path(*file.parts[: file.parts.index("Annotations")])
    return None
