"""`boxmend noise`: add known errors to a dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, Writing, saved_summary
from boxmend.cli.output import print_json, print_table, say
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.noise import NoiseSettings, disturb, join_digests, write_noisy
from boxmend.errors import ExitStatus


@Parameter(name="*")
@dataclass(frozen=True)
class Amounts:
    """What to disturb and how much."""

    labels: Annotated[
        str | None, Parameter(help="symmetric:RATE, pair:RATE or matrix:FILE (.json or .csv).")
    ] = None
    boxes: Annotated[
        str | None,
        Parameter(help="uniform:N, gaussian:SIGMA or jitter:N, in shares of a box's sides."),
    ] = None
    missing: Annotated[float, Parameter(help="Share of annotations to remove.")] = 0.0
    spurious: Annotated[float, Parameter(help="Share of annotations to invent.")] = 0.0
    duplicate: Annotated[float, Parameter(help="Share of objects to annotate twice.")] = 0.0
    subset: Annotated[
        float, Parameter(help="Confine label and box noise to this share of annotations.")
    ] = 1.0
    seed: Annotated[int, Parameter(help="The same input and seed give the same bytes.")] = 0
    clip: Annotated[bool, Parameter(help="Keep disturbed boxes inside their image.")] = True
    look_alikes: Annotated[
        float,
        Parameter(
            help="Share of labels that become those of look-alikes, besides --labels: of the pairs "
            "given, or else of classes that the detector of --predictions confuses."
        ),
    ] = 0.0
    look_alike_pairs: Annotated[
        tuple[str, ...],
        Parameter(
            name="--look-alike-pair",
            help="Two classes that look alike, like cat/dog; once for each pair.",
            negative="",
        ),
    ] = ()
    gross_boxes: Annotated[
        float, Parameter(help="Share of boxes that are grossly off, whatever --boxes says.")
    ] = 0.0
    gross_noise: Annotated[str, Parameter(help="Noise on these boxes, like --boxes.")] = (
        "uniform:0.4"
    )
    missing_order: Annotated[
        Literal["random", "small"],
        Parameter(help="Remove at random, or small objects sooner (chance by 1 / area)."),
    ] = "random"
    spurious_at: Annotated[
        str,
        Parameter(
            help="Where to invent boxes: random, part (half an object) or clutter (unmatched "
            "detections of --predictions); several, joined by commas, take turns."
        ),
    ] = "random"

    def settings(self) -> NoiseSettings:
        """Return them as checked settings of the library."""
        return NoiseSettings(**vars(self))


app = App(name="noise", help_format="markdown")


@app.default
def noise(
    *data: Data,
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")],
    amounts: Amounts | None = None,
    predictions: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Detections for look-alikes and clutter, in files as `boxmend audit` reads them; "
            "once for each file.",
            negative="",
        ),
    ] = (),
    reading: ReadingOptions | None = None,
    writing: Writing | None = None,
    json: Json = False,
) -> int:
    """Make a noisy copy of a dataset, with exact counts, and the truth beside it.

    Writes the dataset in its own format, truth.parquet (the clean label and box of every
    annotation) and noise.json (settings, counts, SHA-256 of the annotation files). Crowd and
    difficult objects stay as they are. Each kind of noise draws from a stream of its own, so
    that two label rates with one seed share the same boxes.
    """
    settings = (amounts or Amounts()).settings()
    ensure_vacant(out)
    dataset = (reading or ReadingOptions()).load(data)
    if predictions and not settings.needs_detections:
        say("--predictions is not used; look-alikes without pairs and clutter would use it")
    detections = _read_detections(dataset, predictions) if settings.needs_detections else None
    noisy = disturb(dataset, settings, detections)
    saved = write_noisy(noisy, settings, out, (writing or Writing()).options())
    digest = join_digests(saved.files)
    if json:
        print_json(saved_summary(saved) | {"counts": noisy.counts, "sha256": digest})
        return ExitStatus.FINE
    print_table(("what", "count"), [(key.replace("_", " "), n) for key, n in noisy.counts.items()])
    print(f"sha256 {digest}")
    if saved.images_missing:
        say(f"{saved.images_missing:,} images were not found and are not in {out}")
    say(f"wrote {out}, with truth.parquet and noise.json")
    return ExitStatus.FINE


def _read_detections(dataset: Dataset, paths: tuple[Path, ...]) -> Detections | None:
    """Read files of predictions; return None if there are none."""
    if not paths:
        return None
    from boxmend.auditing.predictions import read_predictions  # late: most noise needs none

    read = read_predictions(paths, dataset)
    for note in read.notes:
        say(note)
    return Detections(read.image_rows, read.labels, read.scores, read.boxes)
