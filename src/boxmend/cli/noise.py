"""`boxmend noise`: add known errors to a dataset."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Data, Json, ReadingOptions, Writing, saved_summary
from boxmend.cli.output import print_json, print_table, say
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

    def settings(self) -> NoiseSettings:
        """Return them as checked settings of the library."""
        return NoiseSettings(**vars(self))


app = App(name="noise", help_format="markdown")


@app.default
def noise(
    *data: Data,
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")],
    amounts: Amounts | None = None,
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
    noisy = disturb(dataset, settings)
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
