"""`boxmend report`: one page about a finished run or audit."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json, MovedData
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.errors import ExitStatus
from boxmend.web.report.writing import ReportResult, ReportSettings, write_report


@Parameter(name="*")
@dataclass(frozen=True)
class ReportOptions:
    """The truth and the runs to compare with, and the place of the pictures."""

    truth: Annotated[
        str | None,
        Parameter(help="The truth, if known: a truth.parquet, or the clean dataset."),
    ] = None
    baseline: Annotated[
        Path | None,
        Parameter(help="Training runs: another run, whose detector is compared with that of RUN."),
    ] = None
    beside: Annotated[
        tuple[Path, ...],
        Parameter(help="Training runs: further runs to show in the same figures.", negative=""),
    ] = ()
    data: MovedData = ()
    embed: Annotated[
        bool | None,
        Parameter(
            help="Put the pictures into the page, or leave them in a folder next to it. By default "
            "they go into the page if they are smaller than 12 MB."
        ),
    ] = None

    def settings(self) -> ReportSettings:
        """Return these options as the library takes them."""
        return ReportSettings(
            truth=self.truth,
            baseline=self.baseline,
            beside=self.beside,
            data=self.data or None,
            embed=self.embed,
        )


app = App(name="report")


@app.default
def report(
    run: Annotated[Path, Parameter(help="Folder of a finished `boxmend train` or `audit`.")],
    /,
    *,
    options: ReportOptions | None = None,
    out: Annotated[
        Path | None, Parameter(help="Page to write; RUN/report.html by default.")
    ] = None,
    json: Json = False,
) -> int:
    """Write one page about an audit or a training run: a summary, figures, and every change.

    The page of an audit shows the estimated errors and a picture of every fix, that of a training
    run every changed annotation. Both have a button that copies the `boxmend apply` command for
    what they show. RUN/report.html opens in any browser and needs no network. Its figures (SVG and
    CSV) and its pictures are in folders next to it. A new report replaces the old one.

    Example: boxmend report run
    """
    settings = (options or ReportOptions()).settings()
    with progress("making pictures of annotations", quiet=json) as update:
        result = write_report(run, out, settings, progress=update)
    if json:
        print_json(result.to_json())
        return ExitStatus.FINE
    _print(result)
    return ExitStatus.FINE


def _print(result: ReportResult) -> None:
    is_small = result.num_bytes < 1e6
    size = f"{result.num_bytes / 1e3:.0f} kB" if is_small else f"{result.num_bytes / 1e6:.1f} MB"
    print_table(
        ("what", "is"),
        [
            ("report", str(result.path)),
            ("size", size),
            (f"{result.shows} shown", result.num_shown),
            ("figures", len(result.figures)),
        ],
    )
    if result.num_without_picture == 1:
        one = {"annotations": "annotation", "fixes": "fix"}[result.shows]
        say(f"1 {one} has no picture: its image cannot be read")
    elif result.num_without_picture:
        number = f"{result.num_without_picture:,}"
        say(f"{number} {result.shows} have no picture: their images cannot be read")
    if not result.is_embedded:
        say(f"the pictures stay in {result.picture_folder}: move it together with the page")
    say(f"open {result.path} in a browser")
