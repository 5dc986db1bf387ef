"""`boxmend apply`: write the mended dataset of a run."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from cyclopts import App, Parameter

from boxmend.cli.options import FormatName, Json, MovedData, WritingOptions, saved_summary
from boxmend.cli.output import print_json, print_table, say
from boxmend.cli.yields import are_few, count_in_words, print_yields
from boxmend.errors import ExitStatus
from boxmend.repair.apply import CHANGES_FILE, Applied, ApplySettings
from boxmend.repair.apply import apply as apply_run
from boxmend.repair.changes import TakenFixes


@Parameter(name="*")
@dataclass(frozen=True)
class ApplyOptions:
    """The choice of fixes or changes."""

    precision: Annotated[
        float | None,
        Parameter(
            help="Audits: apply as many fixes as possible with this expected precision; 0.95 by "
            "default. A training run has to be audited first."
        ),
    ] = None
    only: Annotated[
        str | None,
        Parameter(
            help="Kinds to apply, separated by commas: labels, boxes; for audits also missing, "
            "spurious, duplicates. All by default."
        ),
    ] = None
    min_confidence: Annotated[
        float,
        Parameter(
            help="Training runs: minimum confidence in a new label, or in the object of a moved "
            "box."
        ),
    ] = 0.0
    discarded: Annotated[
        Literal["keep", "drop", "mark"],
        Parameter(
            help="Training runs: annotations whose label is doubtful but has no replacement: keep "
            "them, drop them, or mark them as iscrowd (COCO) or difficult (VOC)."
        ),
    ] = "keep"

    def settings(self) -> ApplySettings:
        """Return these options as the library takes them; raise a UsageError for invalid ones."""
        return ApplySettings(**vars(self))


@Parameter(name="*")
@dataclass(frozen=True)
class ApplyPaths:
    """The address of the dataset, and the folder and format to write."""

    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")]
    to: Annotated[
        FormatName | None, Parameter(help="Format to write; by default that of the dataset.")
    ] = None
    allow_lossy: Annotated[
        bool,
        Parameter(help="With --to: write even if the format cannot hold everything.", negative=""),
    ] = False
    data: MovedData = ()


app = App(name="apply")


@app.default
def apply(
    run: Annotated[Path, Parameter(help="Folder of a finished `boxmend train` or `audit`.")],
    /,
    *,
    places: ApplyPaths,
    choices: ApplyOptions | None = None,
    writing: WritingOptions | None = None,
    json: Json = False,
) -> int:
    """Write the dataset of a run with its errors fixed and every other byte as it was.

    For an audit, boxmend applies the fixes that reach --precision and those that people accepted,
    and none that people rejected. For a training run, it merges the judgements about an annotation
    into at most one change. changes.csv lists every change with its reason; `boxmend revert` undoes
    them with patch.json. The input is not modified.

    Example: boxmend apply audit --precision 0.95 --out mended
    """
    settings = (choices or ApplyOptions()).settings()
    options = (writing or WritingOptions()).to_write_options(allow_lossy=places.allow_lossy)
    applied = apply_run(
        run,
        places.out,
        settings,
        data=places.data or None,
        format=places.to,
        options=options,
    )
    if json:
        yields = {} if applied.taken is None else {"yields": applied.taken.yields}
        print_json(saved_summary(applied.saved) | applied.to_json() | yields)
    else:
        _print(applied, run)
    return ExitStatus.FINE


def _print(applied: Applied, run: Path) -> None:
    saved, facts = applied.saved, applied.to_json()
    print_table(("what", "is"), [(key.replace("_", " "), value) for key, value in facts.items()])
    for loss in saved.losses:
        say(f"lost: {loss}")
    if saved.images_missing:
        say(f"{saved.images_missing:,} images were not found and are not in {saved.out}")
    if applied.taken is not None:
        _print_taken_fixes(applied.taken, run)
    if applied.changes.num_planted:
        say(
            f"{applied.changes.num_planted:,} annotations stay as they are: the training saw them "
            "with errors that --probe planted, so it did not judge them"
        )
    if applied.is_doubtful:
        say(
            "more than half of the labels changed: either most were wrong, or the detector learnt "
            "too little (few images, few epochs). Look at `boxmend report` before you use this "
            "dataset"
        )
    undo = f"`boxmend revert {quote(str(saved.out))}` undoes the changes"
    say(f"wrote {saved.out}, with {CHANGES_FILE}; {undo}")


def _print_taken_fixes(taken: TakenFixes, run: Path) -> None:
    """Print how many fixes were applied, how precise they are, and how many are left."""
    if taken.expected_precision is not None:
        precision = f"with an expected precision of {taken.expected_precision:.3f}"
        say(f"{len(taken.fixes):,} fixes were applied, {precision}")
    else:
        say("no fix was applied: none reaches the precision, and people accepted none")
    if taken.num_left:
        for_review = count_in_words(taken.num_left, taken.num_likely)
        say(f"{for_review}: `boxmend review {quote(str(run))}`")
    if taken.num_left and are_few(int((~taken.is_accepted).sum()), taken.num_likely):
        print_yields(taken.yields)
    if taken.num_stale:
        say(f"{taken.num_stale:,} verdicts were ignored: the audit does not have their fixes")
