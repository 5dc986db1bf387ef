"""The page: one HTML file that opens from disk and needs no network."""

import base64
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from boxmend import __version__
from boxmend.web.report.content import ReportContent
from boxmend.web.text import display_text, script_json

GENERATOR = '<meta name="generator" content="boxmend report'  # identifies the pages of reports
WIDE_CHART = 'class="chart wide"'  # it may scroll, and therefore needs the keyboard focus
SCRIPTS = {
    kind: ("theme.js", "elements.js", "rows.js", "pictures.js", "command.js", own, "page.js")
    for kind, own in (("run", "run.js"), ("audit", "audit.js"))
}


@dataclass(frozen=True)
class Page:
    """The content of a page."""

    content: ReportContent
    figure_folder: str  # next to the page, with the figures as files
    gallery: dict[str, Any]  # the columns, with their pictures
    picture_folder: str | None  # next to the page; None if the page contains the pictures


def render(page: Page, chart_styles: str = "") -> bytes:
    """Return the page as HTML in UTF-8; its policy blocks any script or file of others."""
    style = _static("page.css") + chart_styles
    content = page.content
    scripts = [_static(name) for name in SCRIPTS[content.kind]]
    others = {"folder": page.picture_folder, "command": content.command}
    data = script_json(page.gallery | others)
    text = _template(f"{content.kind}.html.j2").render(
        generator=Markup(f'{GENERATOR} {__version__}">'),  # no text of users
        policy=policy(style, scripts, has_files=page.picture_folder is not None),
        title=display_text(content.name),
        style=Markup(_ensure_contained(style, "style")),
        scripts=[Markup(_ensure_contained(script, "script")) for script in scripts],
        data=Markup(data),
        page=page,
        content=content,
        figures=[
            (figure, Markup(figure.svg), WIDE_CHART in figure.svg) for figure in content.figures
        ],
        version=__version__,
    )
    return text.encode("utf-8", "replace")


def policy(style: str, scripts: list[str], *, has_files: bool) -> str:
    """Return the content security policy, which allows only these scripts, styles and images.

    Browsers differ in whether 'self' covers files next to a page that is opened from disk.
    """
    images = "data: 'self' file:" if has_files else "data:"
    digests = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src {_digest(style)}; img-src {images}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _ensure_contained(text: str, element: str) -> str:
    """Return the text; assert that it does not end the element that holds it."""
    assert f"</{element}" not in text.lower()
    return text


@cache
def _static(name: str) -> str:
    return (files("boxmend.web.report") / "static" / name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=FunctionLoader(_static),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
