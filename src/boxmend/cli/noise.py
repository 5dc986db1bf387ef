"""`boxmend noise`: write a copy of a dataset with known noise."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, WritingOptions, saved_summary
from boxmend.cli.output import print_json, print_table, say
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.noise import NoiseSettings, disturb, join_digests, make_preset, write_noisy
from boxmend.errors import ExitStatus, UsageError


@Parameter(name="*")
@dataclass(frozen=True)
class NoiseOptions:
    """The kinds of noise to add, and their amounts."""

    labels: Annotated[
        str | None,
        Parameter(
            help="Label noise: symmetric:RATE, any:RATE (any label, also the right one), pair:RATE "
            "or matrix:FILE (.json or .csv); none by default."
        ),
    ] = None
    boxes: Annotated[
        str | None,
        Parameter(
            help="Box noise: uniform:N, gaussian:SIGMA, jitter:N or redraw:M (a new box inside the "
            "old one with a margin), as fractions of the box's sides; none by default."
        ),
    ] = None
    missing: Annotated[float, Parameter(help="Share of annotations to remove.")] = 0.0
    spurious: Annotated[float, Parameter(help="Share of invented annotations to add.")] = 0.0
    duplicate: Annotated[float, Parameter(help="Share of annotations to duplicate.")] = 0.0
    subset: Annotated[
        float, Parameter(help="Share of annotations that label and box noise may affect.")
    ] = 1.0
    seed: Annotated[
        int, Parameter(help="Random seed; the same input and seed give the same bytes.")
    ] = 0
    clip: Annotated[bool, Parameter(help="Clip noisy boxes to their image.")] = True
    look_alikes: Annotated[
        float,
        Parameter(
            help="Share of labels to replace by a look-alike class, in addition to --labels: one "
            "of --look-alike-pair, or a class that the detector of --predictions confuses."
        ),
    ] = 0.0
    look_alike_pairs: Annotated[
        tuple[str, ...],
        Parameter(
            name="--look-alike-pair",
            help="Two classes that look alike, like cat/dog; repeat it for each pair.",
            negative="",
        ),
    ] = ()
    gross_boxes: Annotated[
        float, Parameter(help="Share of boxes that get --gross-noise instead of --boxes.")
    ] = 0.0
    gross_noise: Annotated[str, Parameter(help="Noise of these boxes, written like --boxes.")] = (
        "uniform:0.4"
    )
    missing_order: Annotated[
        Literal["random", "small"],
        Parameter(
            help="Remove annotations at random, or small objects more often (probability "
            "proportional to 1 / area)."
        ),
    ] = "random"
    spurious_at: Annotated[
        str,
        Parameter(
            help="Where to add annotations: random, corners (between two random points), part "
            "(half an object) or clutter (unmatched detections of --predictions); several, "
            "separated by commas, take turns."
        ),
    ] = "random"

    preset: Annotated[
        str | None,
        Parameter(
            help="A published mixture instead of single kinds: una:RATE, with equal shares of "
            "missing, misplaced, mislabelled and invented annotations."
        ),
    ] = None

    def settings(self) -> NoiseSettings:
        """Return these options as the library takes them; raise a UsageError for invalid ones."""
        kinds = {name: value for name, value in vars(self).items() if name != "preset"}
        if self.preset is None:
            return NoiseSettings(**kinds)
        if replace(self, preset=None, seed=0, clip=True) != NoiseOptions():
            raise UsageError(
                f"--preset {self.preset} says which noise to add; leave out the other kinds"
            )
        return make_preset(self.preset, self.seed, clip=self.clip)


app = App(name="noise", usage="boxmend noise --out DIR [OPTIONS] DATA...")


@app.default
def noise(
    *data: Data,
    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")],
    options: NoiseOptions | None = None,
    predictions: Annotated[
        tuple[Path, ...],
        Parameter(
            help="Detections for look-alikes and clutter, as for `boxmend audit`; repeat it for "
            "each file.",
            negative="",
        ),
    ] = (),
    reading: ReadingOptions | None = None,
    writing: WritingOptions | None = None,
    json: Json = False,
) -> int:
    """Write a noisy copy of a dataset in its own format, with the truth next to it.

    truth.parquet has the clean label and box of every annotation; noise.json has the settings, the
    exact counts, and the SHA-256 of the annotation files. Crowd and difficult objects stay as they
    are. Each kind of noise has its own random stream: with one seed, two label noise rates give the
    same boxes.

    Example: boxmend noise data.yaml --labels symmetric:0.4 --out noisy
    """
    settings = (options or NoiseOptions()).settings()
    ensure_vacant(out)
    dataset = (reading or ReadingOptions()).load(data)
    if predictions and not settings.needs_detections:
        say("--predictions is not used; look-alikes without pairs and clutter would use it")
    detections = _read_detections(dataset, predictions) if settings.needs_detections else None
    noisy = disturb(dataset, settings, detections)
    saved = write_noisy(noisy, settings, out, (writing or WritingOptions()).to_write_options())
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
    from boxmend.auditing.predictions import read_predictions  # imported late: slow, seldom needed

    predictions = read_predictions(paths, dataset)
    for note in predictions.notes:
        say(note)
    return Detections(
        predictions.image_rows, predictions.labels, predictions.scores, predictions.boxes
    )
