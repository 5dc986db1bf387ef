"""Charts: drawing by plain functions that return SVG text.

Colour comes from classes (`ink`, `muted`, `grid`, `series-1` ...) that set `color`, which shapes
take up as `currentColor`. So a chart has no style attribute, no script and no outside reference,
and the page that holds it decides on the theme: it puts `STYLES` into its stylesheet.
`standalone` gives the same chart as a file of its own.
"""

from boxmend.web.charts.sheet import drawing, standalone
from boxmend.web.charts.styles import STYLES

__all__ = ["STYLES", "drawing", "standalone"]
