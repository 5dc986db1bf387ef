"""`boxmend folds`: splits by which any trainer predicts on images that it has not seen."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, Writing
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.folds import FoldSettings, write_folds
from boxmend.errors import ExitStatus


@Parameter(name="*")
@dataclass(frozen=True)
class Splitting:
    """How to split."""

    k: Annotated[int, Parameter(name="-k", help="Number of folds.")] = 5
    seed: Annotated[int, Parameter(help="Same images and seed, same folds.")] = 0
    group_by: Annotated[
        str | None,
        Parameter(
            help="Keep images together: folder, frames (the name up to its last number), or a "
            "regular expression whose first group is what they share."
        ),
    ] = None

    def settings(self) -> FoldSettings:
        """The same for the library, checked."""
        return FoldSettings(self.k, self.seed, self.group_by)


app = App(name="folds", help_format="markdown")


@app.default
def folds(
    *data: Data,
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")],
    splitting: Splitting | None = None,
    reading: ReadingOptions | None = None,
    writing: Writing | None = None,
    json: Json = False,
) -> int:
    """Split a dataset into k pairs of train and test, in its own format.

    Every image is in the test part of one fold, chosen by a hash of its file name and evenly by
    class. Train a detector on each train part and let it look at the test part: then
    `boxmend audit DATA --predictions OUT` judges no image by a detector that has learnt it. How to
    do that stands in OUT/README.md, the folds in OUT/folds.json.
    """
    settings = (splitting or Splitting()).settings()
    ensure_vacant(out)
    dataset = (reading or ReadingOptions()).load(data)
    options = (writing or Writing()).options()
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
    say(f"wrote {out}; how to go on stands in {out / 'README.md'}")
    return ExitStatus.FINE
