"""Making a report: the page, the figures as files, and the pictures that both are made with."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.data.files.locks import require_lock
from boxmend.data.files.reading import open_file
from boxmend.data.files.temporary import remove_leftovers
from boxmend.data.progress import Progress
from boxmend.errors import OutputError, UsageError
from boxmend.runs.folder import open_run
from boxmend.web.charts import STYLES
from boxmend.web.report.figure_files import write_figures
from boxmend.web.report.figures import FIGURES
from boxmend.web.report.gallery import Gallery, columns, gallery_of, requests_of
from boxmend.web.report.gathering import DetectorScores, ReportSettings, gathered, scores_of
from boxmend.web.report.page import GENERATOR, Page, rendered
from boxmend.web.report.record import Figure
from boxmend.web.report.summary import summarised
from boxmend.web.thumbnails import make_pictures, remove_others

__all__ = ["ReportSettings", "Reported", "write_report"]

PAGE_FILE = "report.html"
FIGURE_FOLDER = "figures"
CLAIM = "made-by-boxmend.txt"  # in a folder of a report; without it nothing there is touched
CLAIMED = "What `boxmend report` made; it replaces and removes files here.\n"
MOST_EMBEDDED = 12_000_000  # characters of pictures that a page holds by default
SIDES = ((200, 512), (400, 384), (1000, 256))  # most pictures, and their long side in pixels
WHOLE_SIDE = 200  # of a picture of all of an image, which shows where a window lies
SIDE_IN_FOLDER = 384  # of more: photographs are then too many for the page, and may be larger
PICTURES = ("pictures", "whole")  # columns of the gallery that name files


@dataclass(frozen=True)
class Reported:
    """What was written."""

    path: Path
    num_shown: int  # annotations in the gallery
    num_bytes: int  # of the page
    figures: list[str]  # their names
    figure_folder: Path
    picture_folder: Path
    is_embedded: bool  # whether the page does without the folder of pictures
    num_without_picture: int  # annotations whose image cannot be read

    def to_json(self) -> dict[str, Any]:
        """Give the same as plain data."""
        return {
            "out": str(self.path),
            "annotations_shown": self.num_shown,
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
) -> Reported:
    """Make the report of a finished run: RUN/report.html, or the file `out`, and what lies beside.

    Beside are the figures as SVG and CSV, and the pictures of the gallery, which the next report
    takes up again. A page that a report made before is replaced; an OutputError protects any
    other file and any folder that no report made. `progress` hears how many images are done.
    """
    settings = settings or ReportSettings()
    folder = open_run(run).path
    path = folder / PAGE_FILE if out is None else Path(out)
    figure_folder, picture_folder = _folders(path, folder)
    _ensure_ours(path)
    record = gathered(folder, settings)
    figures = [one for one in (draw(record) for draw in FIGURES.values()) if one is not None]
    _claim(figure_folder)
    _claim(picture_folder)
    with require_lock(picture_folder, f"{path}: another process is writing this report"):
        remove_leftovers(picture_folder)
        gallery = gallery_of(record)
        table = _with_pictures(gallery, picture_folder, settings.embed, progress)
        names = {name for column in PICTURES for name in table[column] if name is not None}
        is_embedded = _embedded(table, picture_folder, settings.embed)
        _remove_former(figure_folder, figures)
        write_figures(figures, figure_folder)
        page = Page(
            name=record.name,
            summary=summarised(record, scores_of(record.opened.run), _baseline(settings)),
            figures=figures,
            figure_folder=figure_folder.name,
            gallery=table,
            num_shown=len(gallery),
            picture_folder=None if is_embedded else picture_folder.name,
        )
        content = rendered(page, STYLES)
        with open_atomic(path) as file:
            file.write(content)
        remove_others(picture_folder, names)  # not before: the former page would miss them
    return Reported(
        path=path,
        num_shown=len(gallery),
        num_bytes=len(content),
        figures=[one.name for one in figures],
        figure_folder=figure_folder,
        picture_folder=picture_folder,
        is_embedded=is_embedded,
        num_without_picture=table["pictures"].count(None),
    )


def _folders(path: Path, run: Path) -> tuple[Path, Path]:
    """Where figures and pictures go: beside the page, under names of its own."""
    is_usual = path == run / PAGE_FILE
    figures = FIGURE_FOLDER if is_usual else f"{path.stem}-{FIGURE_FOLDER}"
    return path.parent / figures, path.parent / f"{path.stem}-images"


def _ensure_ours(path: Path) -> None:
    """Refuse to replace anything but a page that a report made."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path}: a report is a page; name it like report.html")
    try:
        with open_file(path) as file:
            head = file.read(4096)
    except FileNotFoundError:
        return
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{path}: is there already and cannot be read ({reason})") from error
    if GENERATOR.encode() not in head:
        raise OutputError(
            f"{path}: is there already and was not made by `boxmend report`; move it away, or name "
            "another file by --out"
        )


def _claim(folder: Path) -> None:
    """Make a folder for files of reports, or know it again; an OutputError protects any other."""
    with wrap_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / CLAIM).is_file():
            return
        found = sorted(one.name for one in folder.iterdir())
        if not found:
            (folder / CLAIM).write_text(CLAIMED, encoding="utf-8")
    if found:
        raise OutputError(
            f"{folder}: holds {found[0]!r}, and was not made by `boxmend report`; move it away, or "
            "name another file by --out"
        )


def _with_pictures(
    gallery: Gallery, folder: Path, embed: bool | None, progress: Progress | None
) -> dict[str, Any]:
    """The columns of the gallery, with a picture for each row in the folder."""
    otherwise = SIDES[-1][1] if embed else SIDE_IN_FOLDER
    side = next((side for most, side in SIDES if len(gallery) <= most), otherwise)
    wanted = requests_of(gallery)
    sides = {"side": side, "whole_side": WHOLE_SIDE}
    made = list(make_pictures(wanted, folder, **sides, progress=progress))
    return columns(gallery, made)


def _embedded(table: dict[str, Any], folder: Path, wish: bool | None) -> bool:
    """Put the pictures themselves in the place of their names, if so wished, or if they are few."""
    try:
        if wish is None:
            names = [name for column in PICTURES for name in table[column] if name is not None]
            wish = sum((folder / name).stat().st_size for name in names) * 4 // 3 <= MOST_EMBEDDED
        for column in PICTURES if wish else ():
            table[column] = [
                None if name is None else base64.b64encode((folder / name).read_bytes()).decode()
                for name in table[column]
            ]
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(
            f"{folder}: a picture that was just made cannot be read ({reason}); if another report "
            "of this run is being made, wait for it and call again"
        ) from error
    return wish


def _remove_former(folder: Path, figures: list[Figure]) -> None:
    """Delete the files of figures that do not apply any more."""
    for name in set(FIGURES) - {one.name for one in figures}:
        for ending in ("svg", "csv"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)


def _baseline(settings: ReportSettings) -> DetectorScores:
    return DetectorScores() if settings.baseline is None else scores_of(open_run(settings.baseline))
