"""`boxmend folds`: split a dataset into folds for out-of-fold predictions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, WritingOptions
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.folds import FoldSettings, write_folds
from boxmend.errors import ExitStatus


@Parameter(name="*")
@dataclass(frozen=True)
class FoldOptions:
    """The number of folds, the seed and the grouping."""

    k: Annotated[int, Parameter(name="-k", help="Number of folds.")] = 5
    seed: Annotated[
        int, Parameter(help="Random seed; the same images and seed give the same folds.")
    ] = 0
    group_by: Annotated[
        str | None,
        Parameter(
            help="Keep related images in one fold: folder, frames (file names that differ only in "
            "their last number), or a regular expression whose first group they share."
        ),
    ] = None

    def settings(self) -> FoldSettings:
        """Return these options as the library takes them; raise a UsageError for invalid ones."""
        return FoldSettings(self.k, self.seed, self.group_by)


app = App(name="folds", usage="boxmend folds --out DIR [OPTIONS] DATA...")


@app.default
def folds(
    *data: Data,
    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")],
    splitting: FoldOptions | None = None,
    reading: ReadingOptions | None = None,
    writing: WritingOptions | None = None,
    json: Json = False,
) -> int:
    """Split a dataset into k folds of a train part and a test part, in its own format.

    Every image is in the test part of exactly one fold; a hash of its file name chooses the fold,
    and classes are spread evenly. Train a detector on each train part and predict on the test part:
    then no image is audited with a detector that was trained on it. OUT/README.md explains the
    steps; OUT/folds.json lists the folds.

    Example: boxmend folds data.yaml -k 5 --out folds
    """
    settings = (splitting or FoldOptions()).settings()
    ensure_vacant(out)
    dataset = (reading or ReadingOptions()).load(data)
    options = (writing or WritingOptions()).to_write_options()
    with progress("writing folds", quiet=json) as update:
        written = write_folds(dataset, out, settings, options, update, data)
    if json:
        print_json({**vars(written), **vars(settings)})
        return ExitStatus.FINE
    rows = list(zip(range(settings.k), written.train, written.test, strict=True))
    print_table(("fold", "train", "test"), rows)
    for note in written.notes:
        say(note)
    if written.images_missing:
        say(f"{written.images_missing:,} images were not found and are not in {out}")
    say(f"wrote {out}; {out / 'README.md'} explains the next steps")
    return ExitStatus.FINE
