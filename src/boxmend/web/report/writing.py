"""Write a report: the page, the figures as files, and the pictures of the gallery."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.data.files.locks import require_lock
from boxmend.data.files.reading import open_file
from boxmend.data.files.temporary import remove_leftovers
from boxmend.data.progress import Progress
from boxmend.errors import OutputError, UsageError
from boxmend.runs.folder import open_run
from boxmend.runs.opening import is_audit
from boxmend.web.charts import STYLES
from boxmend.web.report.audits.content import make_audit_content
from boxmend.web.report.audits.figures import AUDIT_FIGURES
from boxmend.web.report.content import ReportContent
from boxmend.web.report.figure_files import write_figures
from boxmend.web.report.figures import FIGURES
from boxmend.web.report.gathering import ReportSettings
from boxmend.web.report.page import GENERATOR, Page, render
from boxmend.web.report.record import Figure
from boxmend.web.report.run_content import make_run_content
from boxmend.web.thumbnails import make_pictures, remove_others

__all__ = ["ReportResult", "ReportSettings", "write_report"]

PAGE_FILE = "report.html"
FIGURE_FOLDER = "figures"
MARKER_FILE = "made-by-boxmend.txt"  # folders without it are never changed
MARKER_TEXT = "`boxmend report` made this folder; it replaces and removes files here.\n"
MAX_EMBEDDED_CHARACTERS = 12_000_000  # of the pictures in a page, by default
LONG_SIDES = ((200, 512), (400, 384), (1000, 256))  # maximum number of pictures, pixels
WHOLE_SIDE = 200  # pixels; the picture of the whole image shows where a window is
SIDE_IN_FOLDER = 384  # pixels; more pictures stay in their folder, so they may be larger
PICTURE_COLUMNS = ("pictures", "whole")  # of the gallery


@dataclass(frozen=True)
class ReportResult:
    """The files of a written report."""

    path: Path
    num_shown: int  # annotations in the gallery, or fixes of an audit
    num_bytes: int  # of the page
    figures: list[str]  # their names
    figure_folder: Path
    picture_folder: Path
    is_embedded: bool  # whether the page contains the pictures
    num_without_picture: int  # annotations or fixes whose image cannot be read
    shows: Literal["annotations", "fixes"] = "annotations"

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "out": str(self.path),
            f"{self.shows}_shown": self.num_shown,
            "bytes": self.num_bytes,
            "figures": self.figures,
            "figure_folder": str(self.figure_folder),
            "picture_folder": str(self.picture_folder),
            "pictures_embedded": self.is_embedded,
            "without_picture": self.num_without_picture,
        }


def write_report(
    run: str | Path,
    out: str | Path | None = None,
    settings: ReportSettings | None = None,
    *,
    progress: Progress | None = None,
) -> ReportResult:
    """Write the report of a finished run or audit: RUN/report.html, or `out`, and its folders.

    The folders are next to the page: the figures as SVG and CSV, and the pictures of the gallery,
    which the next report uses again. An older report is replaced; any other file or folder in the
    way raises an OutputError. `progress` is called with the number of finished images.
    """
    settings = settings or ReportSettings()
    source = open_run(run)
    folder = source.path
    path = folder / PAGE_FILE if out is None else Path(out)
    figure_folder, picture_folder = _folders(path, folder)
    _ensure_replaceable(path)
    make_content = make_audit_content if is_audit(source) else make_run_content
    content = make_content(source, settings)
    _mark_folder(figure_folder)
    _mark_folder(picture_folder)
    with require_lock(picture_folder, f"{path}: another process is writing this report"):
        remove_leftovers(picture_folder)
        table = _with_pictures(content, picture_folder, settings.embed, progress)
        names = set(_picture_names(table))
        is_embedded = _embed_pictures(table, picture_folder, settings.embed)
        _remove_old_figures(figure_folder, content.figures)
        write_figures(content.figures, figure_folder)
        page = Page(
            content=content,
            figure_folder=figure_folder.name,
            gallery=table,
            picture_folder=None if is_embedded else picture_folder.name,
        )
        html = render(page, STYLES)
        with open_atomic(path) as file:
            file.write(html)
        remove_others(picture_folder, names)  # last, because the old page needs its pictures
    return ReportResult(
        path=path,
        num_shown=content.num_shown,
        num_bytes=len(html),
        figures=[figure.name for figure in content.figures],
        figure_folder=figure_folder,
        picture_folder=picture_folder,
        is_embedded=is_embedded,
        num_without_picture=table["pictures"].count(None),
        shows="fixes" if content.kind == "audit" else "annotations",
    )


def _folders(path: Path, run: Path) -> tuple[Path, Path]:
    """Return the folders of figures and pictures next to a page, named after the page."""
    is_usual = path == run / PAGE_FILE
    figures = FIGURE_FOLDER if is_usual else f"{path.stem}-{FIGURE_FOLDER}"
    return path.parent / figures, path.parent / f"{path.stem}-images"


def _ensure_replaceable(path: Path) -> None:
    """Raise an OutputError if the path holds anything but an older report."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path}: a report is an HTML page; choose a name like report.html")
    try:
        with open_file(path) as file:
            head = file.read(4096)
    except FileNotFoundError:
        return
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: the file exists and cannot be read ({reason})") from error
    if GENERATOR.encode() not in head:
        raise OutputError(
            f"{path}: the file exists and `boxmend report` did not write it; move it away, or "
            "choose another page with --out"
        )


def _mark_folder(folder: Path) -> None:
    """Create a folder for a report and mark it; raise an OutputError if it holds other files."""
    with wrap_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / MARKER_FILE).is_file():
            return
        names = sorted(path.name for path in folder.iterdir())
        if not names:
            (folder / MARKER_FILE).write_text(MARKER_TEXT, encoding="utf-8")
    if names:
        raise OutputError(
            f"{folder}: the folder holds {names[0]!r} and `boxmend report` did not make it; move "
            "it away, or choose another page with --out"
        )


def _with_pictures(
    content: ReportContent, folder: Path, embed: bool | None, progress: Progress | None
) -> dict[str, Any]:
    """Return the columns of the gallery, and make a picture for each row in the folder."""
    side = LONG_SIDES[-1][1] if embed else SIDE_IN_FOLDER
    side = next((pixels for number, pixels in LONG_SIDES if content.num_shown <= number), side)
    sides = {"side": side, "whole_side": WHOLE_SIDE}
    pictures = list(make_pictures(content.requests, folder, **sides, progress=progress))
    return content.columns(pictures)


def _picture_names(table: dict[str, Any]) -> list[str]:
    return [name for column in PICTURE_COLUMNS for name in table[column] if name is not None]


def _embed_pictures(table: dict[str, Any], folder: Path, embed: bool | None) -> bool:
    """Replace the names of pictures by the pictures; by default only if they are small enough."""
    try:
        if embed is None:
            size = sum((folder / name).stat().st_size for name in _picture_names(table))
            embed = size * 4 // 3 <= MAX_EMBEDDED_CHARACTERS
        for column in PICTURE_COLUMNS if embed else ():
            table[column] = [
                None if name is None else base64.b64encode((folder / name).read_bytes()).decode()
                for name in table[column]
            ]
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"{folder}: a new picture cannot be read ({reason}); if another process writes a "
            "report of this run, wait for it and try again"
        ) from error
    return embed


def _remove_old_figures(folder: Path, figures: list[Figure]) -> None:
    """Delete the files of figures that the report no longer has."""
    for name in {*FIGURES, *AUDIT_FIGURES} - {figure.name for figure in figures}:
        for ending in ("svg", "csv"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
