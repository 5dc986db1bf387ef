"""The SVG element of a chart, in a page or as a file of its own."""

from boxmend.web.charts.styles import FILE_STYLES
from boxmend.web.charts.words import to_xml

WIDTH = 480.0  # of a chart in its own units; at this width, sizes are pixels
EDGE = 6.0  # left free at both sides of a chart
SIZE = 14.0  # font size; nine pixels in a card on a phone, which is 320 pixels wide
SMALL = 13.0  # font size on axes
_NAMESPACE = "http://www.w3.org/2000/svg"


def drawing(name: str, title: str, message: str, size: tuple[float, float], content: str) -> str:
    """Return an `<svg>` of this size with a title and a description; its ids start with chart-NAME.

    `name` has only letters and hyphens. Users' texts in title and message must be cleaned before.
    """
    identity = f"chart-{name}"
    css = "chart wide" if size[0] > WIDTH else "chart"  # the page lets wide ones scroll
    return (
        f'<svg xmlns="{_NAMESPACE}" class="{css}" viewBox="0 0 {size[0]:g} {size[1]:g}" '
        f'role="img" aria-labelledby="{identity}-title" aria-describedby="{identity}-desc">'
        f'<title id="{identity}-title">{to_xml(title)}</title>'
        f'<desc id="{identity}-desc">{to_xml(message)}</desc>{content}</svg>'
    )


def standalone(svg: str) -> str:
    """Return a drawing as an SVG file with colours: light, or dark if the system is dark."""
    start = svg.index(">") + 1
    style = f"<style>{FILE_STYLES}</style>"
    paper = '<rect class="paper" width="100%" height="100%" fill="currentColor"/>'
    # The title stays the first child, where browsers look for it.
    start = svg.index("</desc>", start) + len("</desc>")
    declaration = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f"{declaration}{svg[:start]}{style}{paper}{svg[start:]}\n"
