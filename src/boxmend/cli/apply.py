"""`boxmend apply`: the dataset of a run, mended."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from cyclopts import App, Parameter

from boxmend.cli.options import FormatName, Json, MovedData, Writing, saved_summary
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus
from boxmend.repair.apply import CHANGES_FILE, Applied, ApplySettings
from boxmend.repair.apply import apply as apply_run
from boxmend.repair.changes import TakenFixes


@Parameter(name="*")
@dataclass(frozen=True)
class ApplyOptions:
    """What to mend, and when."""

    precision: Annotated[
        float | None,
        Parameter(
            help="Take the largest set of an audit's fixes that are right so often, by "
            "expectation. 0.95 for audits; a training run has to be audited first."
        ),
    ] = None
    only: Annotated[
        str | None,
        Parameter(
            help="What to mend, parted by commas: labels, boxes; of audits also missing, "
            "spurious, duplicates. All by default."
        ),
    ] = None
    min_confidence: Annotated[
        float,
        Parameter(
            help="Trainings: least confidence in a new label, or in the object of a moved box."
        ),
    ] = 0.0
    discarded: Annotated[
        Literal["keep", "drop", "mark"],
        Parameter(
            help="Trainings: annotations whose label is doubted while no other was found: keep "
            "them, drop them, or mark them as iscrowd (COCO) or difficult (VOC)."
        ),
    ] = "keep"

    def settings(self) -> ApplySettings:
        """The same for the library, checked."""
        return ApplySettings(**vars(self))


@Parameter(name="*")
@dataclass(frozen=True)
class ApplyPaths:
    """Where things are, and where they go."""

    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")]
    to: Annotated[FormatName | None, Parameter(help="Format to write; its own by default.")] = None
    allow_lossy: Annotated[
        bool, Parameter(help="Go on where the format cannot hold all.", negative="")
    ] = False
    data: MovedData = ()


app = App(name="apply", help_format="markdown")


@app.default
def apply(
    run: Annotated[Path, Parameter(help="Folder of a finished `boxmend train` or `audit`.")],
    /,
    *,
    places: ApplyPaths,
    choices: ApplyOptions | None = None,
    writing: Writing | None = None,
    json: Json = False,
) -> int:
    """Write the dataset of a run with only what is mended changed.

    Of an audit, with --precision, or after a review, fixes are taken if precise enough, and what
    people accepted; what they rejected is not. Of a training, the visits of an annotation are
    settled into at most one change. Beside the dataset there are changes.csv, which lists every
    change with its reason, and patch.json, with which `boxmend revert` takes them back. The input
    is not modified.
    """
    settings = (choices or ApplyOptions()).settings()
    options = (writing or Writing()).options(allow_lossy=places.allow_lossy)
    applied = apply_run(
        run,
        places.out,
        settings,
        data=places.data or None,
        format=places.to,
        options=options,
    )
    if json:
        print_json(saved_summary(applied.saved) | applied.to_json())
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
        _say_taken(applied.taken, run)
    if applied.is_doubtful:
        say(
            "more than half of the labels changed: either most were wrong, or the detector learnt "
            "too little (few images, few epochs). Look at `boxmend report` before you use this"
        )
    back = f"`boxmend revert {quote(str(saved.out))}` takes it back"
    say(f"wrote {saved.out}, with {CHANGES_FILE}; {back}")


def _say_taken(taken: TakenFixes, run: Path) -> None:
    """Both numbers: what was taken, how precise, and what is left to people."""
    if taken.expected_precision is not None:
        said = f"with an expected precision of {taken.expected_precision:.3f}"
        say(f"{len(taken.fixes):,} fixes were taken, {said}")
    else:
        say("no fix was taken; a lower --precision takes more")
    if taken.num_left:
        say(f"{taken.num_left:,} are left for review: `boxmend review {quote(str(run))}`")
    if taken.num_stale:
        say(
            f"{taken.num_stale:,} verdicts are about fixes that the table does not have any more, "
            "and were passed over"
        )
