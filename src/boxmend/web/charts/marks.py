"""Marks: the elements of charts, as SVG text."""

from collections.abc import Sequence
from typing import Literal

from boxmend.web.charts.sheet import SIZE
from boxmend.web.charts.words import to_xml

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
DASHES = {"solid": "", "dashed": "7 4", "dotted": "2 3.5"}


def coordinate(value: float) -> str:
    """Format a coordinate to a hundredth, without exponent or trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def text(
    at: Point,
    words: str,
    css: str = "ink",
    *,
    size: float = SIZE,
    anchor: Anchor = "start",
    turned: float = 0,
) -> str:
    """Draw a text whose base line starts, ends or is centred at a point; users' must be cleaned."""
    x, y = map(coordinate, at)
    turn = f' transform="rotate({turned:g} {x} {y})"' if turned else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text class="{css}" x="{x}" y="{y}" font-size="{size:g}" fill="currentColor"'
        f"{where}{turn}>{to_xml(words)}</text>"
    )


def line(start: Point, end: Point, css: str, *, width: float = 1, dash: str = "solid") -> str:
    """Draw a straight line."""
    (x1, y1), (x2, y2) = (tuple(map(coordinate, point)) for point in (start, end))
    return (
        f'<line class="{css}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" '
        f'stroke-width="{width:g}"{_dash(dash)}/>'
    )


def path(points: Sequence[Point], css: str, *, width: float = 2, dash: str = "solid") -> str:
    """Draw an open line through points."""
    return (
        f'<path class="{css}" d="{_moves(points)}" fill="none" stroke="currentColor" '
        f'stroke-width="{width:g}" stroke-linejoin="round"{_dash(dash)}/>'
    )


def area(points: Sequence[Point], css: str, *, fill: str = "currentColor", opacity: float) -> str:
    """Draw a filled outline; `fill` may be a pattern of `hatching`."""
    return (
        f'<path class="{css}" d="{_moves(points)}Z" fill="{fill}" fill-opacity="{opacity:g}" '
        'stroke="none"/>'
    )


def bar(
    corner: Point,
    size: Point,
    css: str,
    *,
    fill: str = "currentColor",
    opacity: float = 1,
    is_framed: bool = False,
) -> str:
    """Draw a rectangle, given its upper left corner and its size."""
    x, y, width, height = map(coordinate, (*corner, max(size[0], 0), max(size[1], 0)))
    frame = ' stroke="currentColor" stroke-width="1"' if is_framed else ""
    return (
        f'<rect class="{css}" x="{x}" y="{y}" width="{width}" height="{height}" '
        f'fill="{fill}" fill-opacity="{opacity:g}"{frame}/>'
    )


def dot(at: Point, css: str, *, radius: float = 5, is_hollow: bool = False) -> str:
    """Draw a disc, or a ring if it is hollow."""
    x, y = map(coordinate, at)
    fill = "none" if is_hollow else "currentColor"
    return (
        f'<circle class="{css}" cx="{x}" cy="{y}" r="{radius:g}" fill="{fill}" '
        'stroke="currentColor" stroke-width="2"/>'
    )


def hatching(name: str, css: str, *, is_rising: bool = True) -> tuple[str, str]:
    """Return the definition of a pattern of slanted lines, and the `fill` that uses it.

    `name` must be unique on the page.
    """
    strokes = "M-1.5 1.5L1.5-1.5M0 6L6 0M4.5 7.5L7.5 4.5"
    if not is_rising:
        strokes = "M-1.5 4.5L1.5 7.5M0 0L6 6M4.5-1.5L7.5 1.5"
    definition = (
        f'<defs><pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse">'
        f'<path class="{css}" d="{strokes}" stroke="currentColor" stroke-width="1.8"/>'
        "</pattern></defs>"
    )
    return definition, f"url(#{name})"


def _moves(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)


def _dash(name: str) -> str:
    return f' stroke-dasharray="{DASHES[name]}"' if DASHES[name] else ""
