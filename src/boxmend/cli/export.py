"""`boxmend export`: write doubtful annotations for an annotation tool."""

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
    """The address of the dataset, and the tool and folder to write for."""

    to: Annotated[
        Literal["label-studio", "cvat", "fiftyone", "coco"], Parameter(help="Tool to write for.")
    ]
    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")]
    data: MovedData = ()


@Parameter(name="*")
@dataclass(frozen=True)
class ExportChoices:
    """The choice of annotations."""

    changes: Annotated[
        bool,
        Parameter(
            help="Export every change that `apply` makes. For a training run this is the default; "
            "for an audit the default is the fixes left for review.",
            negative="",
        ),
    ] = False
    most: Annotated[
        int | None,
        Parameter(help="Export this many of the most suspicious annotations instead."),
    ] = None
    whole_images: Annotated[
        bool,
        Parameter(help="Include the other annotations of the same images, unchanged."),
    ] = True


@Parameter(name="*")
@dataclass(frozen=True)
class ImageOptions:
    """The way in which the tool finds the images."""

    images_as: Annotated[
        Literal["none", "link", "copy"],
        Parameter(help="Write only the names of the images, or link or copy the files."),
    ] = "none"
    image_prefix: Annotated[
        str | None,
        Parameter(
            help="Label Studio: URL to put before the image file names. By default Label Studio "
            "reads them as local files."
        ),
    ] = None


app = App(name="export")


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
    """Export doubtful annotations with proposed changes, for people to decide on.

    Each suspect annotation comes with the proposed change, its reason, and the original. README.md
    in the output explains how to import it into the tool. After an audit, `boxmend import` reads
    the verdicts back.

    Example: boxmend export audit --to label-studio --out tasks
    """
    choices, images = choices or ExportChoices(), images or ImageOptions()
    if choices.changes and choices.most is not None:
        raise UsageError("--changes and --most exclude each other; give one of them")
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
        say(f"--most asks for {most:,}; suspects in this run: {exported.num_suspects:,}")
    if exported.num_improbable:
        say(
            f"{exported.num_improbable:,} fixes left for review were not exported because they are "
            "improbable; --most N exports the N most probable of all"
        )
    if exported.missing:
        say(f"image files not found: {len(exported.missing):,}, the first {exported.missing[0]}")
    if exported.left_out:
        say(
            f"images left out because their size is unknown: {len(exported.left_out):,}, the first "
            f"{exported.left_out[0]}"
        )
    readme = exported.out / README_FILE
    say(f"wrote {exported.out} for {exported.to}; {readme} explains how to import it")
