"""The sheet that a chart is drawn on, within a page or as a file of its own."""

from boxmend.web.charts.styles import FILE_STYLES
from boxmend.web.charts.words import prose

WIDTH = 480.0  # of a sheet, in its own units; at this width, sizes are pixels
EDGE = 6.0  # left free at either side of a sheet
SIZE = 14.0  # of text; in a card on a phone, 320 pixels wide, that is nine pixels
SMALL = 13.0  # of text on axes
_NAMESPACE = "http://www.w3.org/2000/svg"


def drawing(name: str, title: str, message: str, size: tuple[float, float], content: str) -> str:
    """An `<svg>` of this size with what it says in words; all its ids begin with `chart-NAME`.

    `name` has letters and hyphens only. Title and message may hold users' words, cleaned.
    """
    identity = f"chart-{name}"
    css = "chart wide" if size[0] > WIDTH else "chart"  # the page lets wide ones scroll
    return (
        f'<svg xmlns="{_NAMESPACE}" class="{css}" viewBox="0 0 {size[0]:g} {size[1]:g}" '
        f'role="img" aria-labelledby="{identity}-title" aria-describedby="{identity}-desc">'
        f'<title id="{identity}-title">{prose(title)}</title>'
        f'<desc id="{identity}-desc">{prose(message)}</desc>{content}</svg>'
    )


def standalone(svg: str) -> str:
    """A drawing as an SVG file with its colours: light on paper, or dark where the system is."""
    start = svg.index(">") + 1
    style = f"<style>{FILE_STYLES}</style>"
    paper = '<rect class="paper" width="100%" height="100%" fill="currentColor"/>'
    # The title stays the first child, where browsers look for it.
    start = svg.index("</desc>", start) + len("</desc>")
    declaration = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f"{declaration}{svg[:start]}{style}{paper}{svg[start:]}\n"
