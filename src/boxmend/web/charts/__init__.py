"""Charts: plain functions that return SVG text.

Colours come from classes (`ink`, `muted`, `grid`, `series-1` ...) that set `color`, and shapes use
`currentColor`. A chart therefore has no style attribute, script or external reference, and the page
decides on the theme: it includes `STYLES` in its stylesheet. `standalone` returns a chart as a file
of its own.
"""

from boxmend.web.charts.sheet import drawing, standalone
from boxmend.web.charts.styles import STYLES

__all__ = ["STYLES", "drawing", "standalone"]
