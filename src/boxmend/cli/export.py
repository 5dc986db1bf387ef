"""`boxmend export`: doubtful annotations, for the tools people annotate with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from boxmend.cli.options import Json, MovedData
from boxmend.cli.output import print_json, print_table, say
from boxmend.errors import ExitStatus, UsageError
from boxmend.repair.export import README_FILE, Exported, ExportOptions
from boxmend.repair.export import export as export_run


@Parameter(name="*")
@dataclass(frozen=True)
class ExportPaths:
    """Where things are, and where they go."""

    to: Annotated[
        Literal["label-studio", "cvat", "fiftyone", "coco"], Parameter(help="Tool to write for.")
    ]
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")]
    data: MovedData = ()


@Parameter(name="*")
@dataclass(frozen=True)
class ExportChoices:
    """What to hand over."""

    changes: Annotated[
        bool,
        Parameter(
            help="All changes: relabelled, moved, unsure; the default. Of an audit what `apply` "
            "would make; by default it is what `apply` leaves for review.",
            negative="",
        ),
    ] = False
    most: Annotated[
        int | None,
        Parameter(help="Instead, this many of which the run is most suspicious."),
    ] = None
    whole_images: Annotated[
        bool,
        Parameter(help="Also give the other annotations of these images, as they are."),
    ] = True


@Parameter(name="*")
@dataclass(frozen=True)
class ImageOptions:
    """How images are reached."""

    images_as: Annotated[
        Literal["none", "link", "copy"],
        Parameter(help="Images in the output: none, as they are only named; links, or copies."),
    ] = "none"
    image_prefix: Annotated[
        str | None,
        Parameter(
            help="Label Studio: address that goes in front of the images' file names. By default "
            "they are local files of its host."
        ),
    ] = None


app = App(name="export", help_format="markdown")


@app.default
def export(
    run: Annotated[Path, Parameter(help="Folder of a finished `boxmend train` or `audit`.")],
    /,
    *,
    places: ExportPaths,
    choices: ExportChoices | None = None,
    images: ImageOptions | None = None,
    json: Json = False,
) -> int:
    """Hand annotations that a run doubts to people, as pre-annotations with scores.

    Every image comes with its suspect annotations as the run would mend them, why, and what they
    were before. README.md in the output says how to import it; handover.json lists all of it. Of
    an audited run, its fixes are handed over, and `boxmend import` reads the verdicts back.
    """
    choices, images = choices or ExportChoices(), images or ImageOptions()
    if choices.changes and choices.most is not None:
        raise UsageError("--changes and --most exclude each other; pass one of them")
    exported = export_run(
        run,
        places.out,
        places.to,
        most=choices.most,
        data=places.data or None,
        options=ExportOptions(
            choices.whole_images, images.images_as, images.image_prefix, choices.changes
        ),
    )
    if json:
        print_json(exported.to_json())
    else:
        _print(exported, choices.most)
    return ExitStatus.FINE


def _print(exported: Exported, most: int | None) -> None:
    facts = {"suspects": exported.num_suspects, "images": exported.num_images}
    facts["other annotations"] = exported.num_others
    print_table(("what", "is"), list(facts.items()))
    if most is not None and exported.num_suspects < most and not exported.left_out:
        say(f"{most:,} were asked for; the run knows something about {exported.num_suspects:,}")
    if exported.num_unasked:
        say(
            f"not handed over, as they are improbable: {exported.num_unasked:,} of the fixes left "
            "for review; --most N hands over the N likeliest of all"
        )
    if exported.missing:
        say(f"image files not found: {len(exported.missing):,}, the first {exported.missing[0]}")
    if exported.left_out:
        say(
            f"images left out, as their size is not known: {len(exported.left_out):,}, the first "
            f"{exported.left_out[0]}"
        )
    say(f"wrote {exported.out} for {exported.to}; {exported.out / README_FILE} says how to import")
