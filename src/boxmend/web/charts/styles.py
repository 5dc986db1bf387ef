"""The colours of charts, light and dark, as CSS.

People with any kind of colour blindness can distinguish the colours of series (after Okabe and
Ito, "Color Universal Design", 2008); dashes, hatching or texts also carry their meaning.
"""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2127",
    "muted": "#59636e",
    "grid": "#dfe3e8",
    "axis": "#8b949e",
    "shade": "#8b949e",
    "heat": "#0072b2",
    "series-1": "#0072b2",
    "series-2": "#c65100",
    "series-3": "#87458f",
    "series-4": "#007a5a",
    "quiet": "#8b949e",
}
DARK = {
    "paper": "#12161b",
    "ink": "#e7ecf1",
    "muted": "#a3adb8",
    "grid": "#2c333b",
    "axis": "#68727d",
    "shade": "#68727d",
    "heat": "#459fdd",
    "series-1": "#56b4e9",
    "series-2": "#f0953f",
    "series-3": "#d79be0",
    "series-4": "#3ecf9f",
    "quiet": "#6d7782",
}
_SHARED = (
    ".chart{display:block;width:100%;height:auto;font-family:system-ui,-apple-system,"
    '"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}'
)


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--chart-{name}:{color};" for name, color in palette.items())


def _page_styles() -> str:
    """Return rules with CSS variables; `data-theme` on the root overrides the system's theme."""
    rules = [
        _SHARED,
        f".chart{{{_variables(LIGHT)}}}",
        f"@media screen and (prefers-color-scheme: dark){{.chart{{{_variables(DARK)}}}}}",
        f':root[data-theme="light"] .chart{{{_variables(LIGHT)}}}',
        f'@media screen{{:root[data-theme="dark"] .chart{{{_variables(DARK)}}}}}',
        *(f".chart .{name}{{color:var(--chart-{name})}}" for name in LIGHT),
    ]
    return "\n".join(rules)


def _file_styles() -> str:
    """Return rules with plain colours, because drawing programs do not support CSS variables."""
    dark = "".join(f".{name}{{color:{color}}}" for name, color in DARK.items())
    rules = [
        _SHARED,
        *(f".{name}{{color:{color}}}" for name, color in LIGHT.items()),
        f"@media (prefers-color-scheme: dark){{{dark}}}",
    ]
    return "\n".join(rules)


STYLES = _page_styles()
"""CSS for a page with charts; `--chart-paper` should be the colour behind them."""
FILE_STYLES = _file_styles()
"""CSS for a chart in a file of its own."""
