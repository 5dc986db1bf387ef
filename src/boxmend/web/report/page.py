"""The page: one HTML file that opens from disk and asks nobody for anything."""

import base64
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from boxmend import __version__
from boxmend.web.report.record import Figure
from boxmend.web.report.summary import ReportSummary
from boxmend.web.text import script_json, shown

GENERATOR = '<meta name="generator" content="boxmend report'  # by which a page is known as ours
WIDE = 'class="chart wide"'  # what may have to be scrolled, and so needs the focus
SCRIPTS = ("theme.js", "rows.js", "pictures.js", "page.js")


@dataclass(frozen=True)
class Page:
    """What is put on a page."""

    name: str  # of the run
    summary: ReportSummary
    figures: list[Figure]
    figure_folder: str  # beside the page, where the figures lie as files
    gallery: dict[str, Any]  # the columns, with their pictures
    num_shown: int
    picture_folder: str | None  # beside the page; None where pictures are in it


def rendered(page: Page, chart_styles: str = "") -> bytes:
    """The page as HTML in UTF-8; a policy in it lets nothing run or load that is not its own."""
    style = _static("page.css") + chart_styles
    scripts = [_static(name) for name in SCRIPTS]
    data = script_json(page.gallery | {"folder": page.picture_folder})
    text = _template().render(
        generator=Markup(f'{GENERATOR} {__version__}">'),  # our own words
        policy=policy(style, scripts, has_files=page.picture_folder is not None),
        title=shown(page.name),
        style=Markup(_contained(style, "style")),
        scripts=[Markup(_contained(one, "script")) for one in scripts],
        data=Markup(data),
        page=page,
        figures=[(one, Markup(one.svg), WIDE in one.svg) for one in page.figures],
        version=__version__,
    )
    return text.encode("utf-8", "replace")


def policy(style: str, scripts: list[str], *, has_files: bool) -> str:
    """The content security policy: only these texts are run or applied, only these images shown.

    Browsers differ in whether a page opened from disk may name its neighbours as 'self'.
    """
    images = "data: 'self' file:" if has_files else "data:"
    runs = " ".join(_digest(one) for one in scripts)
    return (
        f"default-src 'none'; script-src {runs}; style-src {_digest(style)}; img-src {images}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _contained(text: str, element: str) -> str:
    """The text, of which no part may end the element it stands in."""
    assert f"</{element}" not in text.lower()
    return text


@cache
def _static(name: str) -> str:
    return (files("boxmend.web.report") / "static" / name).read_text(encoding="utf-8")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FunctionLoader(_static),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
