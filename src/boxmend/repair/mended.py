"""A repaired dataset in memory: its changes, and the folder that `apply` writes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields, replace
from pathlib import Path

from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats.writing import SaveResult, WriteOptions, native_format, write_into
from boxmend.data.table import Table
from boxmend.errors import OutputError
from boxmend.repair import patches
from boxmend.repair.changes import Changes, mend
from boxmend.repair.listing import changes_csv, changes_table
from boxmend.repair.reverting import CHANGES_FILE, PATCH_FILE


@dataclass(eq=False, repr=False, kw_only=True)
class MendedDataset(Dataset):
    """A dataset with its changes applied; `save` writes what `boxmend apply` writes.

    Parts of it, like `subset`, are plain datasets.
    """

    original: Dataset
    applied: Changes

    @property
    def changes(self) -> Table:
        """The changes, with their reasons: one row per fix, or per annotation of a training run."""
        return changes_table(self.original, self.applied)

    def __repr__(self) -> str:
        taken = self.applied.taken
        precision = None if taken is None else taken.expected_precision
        expected = "" if precision is None else f", expected precision {precision:.3f}"
        return f"{super().__repr__()}\n  {len(self.changes):,} changes{expected}"

    def save(
        self,
        out: str | Path,
        *,
        format: str | None = None,
        images_as: str = "link",
        allow_lossy: bool = False,
        segmentation: str = "flag",
    ) -> SaveResult:
        """Write the dataset, `changes.csv` and the patch for `revert` into a new or empty folder.

        The options are those of `Dataset.save`. Columns that you change after the repair are
        written and can be reverted, too, but `changes.csv` does not list them.
        """
        options = WriteOptions(images_as, allow_lossy, segmentation)
        return write_mended(self, Path(out), format or native_format(self.original), options)


def make_mended(dataset: Dataset, changes: Changes, format: str) -> MendedDataset:
    """Return a copy of a dataset with the changes; `format` is the one to write."""
    copy = mend(dataset, changes, format)
    columns = {name.name: getattr(copy, name.name) for name in fields(Dataset)}
    return MendedDataset(**columns, original=dataset, applied=changes)


def write_mended(
    mended: MendedDataset, out: Path, format: str, options: WriteOptions
) -> SaveResult:
    """Write the changed dataset, the list of changes, and the patch for `revert`."""
    dataset = mended.original
    listing = changes_csv(dataset, mended.applied)
    with stage_folder(out, sync=options.sync) as folder:
        saved = write_into(folder, mended, format, options, out=out)
        _ensure_names_unused(saved)
        patch = patches.encode(_make_patches(folder, dataset, saved, options))
        for file, content in ((CHANGES_FILE, listing), (PATCH_FILE, patch)):
            with (folder / file).open("xb") as stream:
                stream.write(content)
        ensure_unchanged(dataset)
    return saved


def _ensure_names_unused(saved: SaveResult) -> None:
    for name in (CHANGES_FILE, PATCH_FILE):
        if name in saved.files:
            raise OutputError(
                f"{saved.out}: the dataset has an annotation file {name}, the name of a file that "
                "`apply` writes; rename the annotation file"
            )


def _make_patches(
    folder: Path, dataset: Dataset, saved: SaveResult, options: WriteOptions
) -> dict[str, patches.FilePatch]:
    """Return the patches from the files in `folder` to those of the unchanged dataset.

    The unchanged dataset is written to a temporary folder, and the files are compared.
    """
    unchanged = folder / f".{PATCH_FILE}.unchanged"
    unchanged.mkdir()
    try:
        files = write_into(
            unchanged, dataset, saved.format, replace(options, images_as="none"), out=saved.out
        ).files
        return {
            name: patches.make_patch(
                (unchanged / name).read_bytes() if name in files else None,
                (folder / name).read_bytes() if name in saved.files else None,
            )
            for name in {**saved.files, **files}
            if files.get(name) != saved.files.get(name)
        }
    finally:
        shutil.rmtree(unchanged)
