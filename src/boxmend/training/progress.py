"""The progress of a training as a panel, for terminals and notebooks."""

import math
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

Line = dict[str, Any]
PROGRESS_KEYS = ("epoch", "step", "images_per_second", "seconds_left", "epoch_ends")
LOSSES = ("loss", "rpn_objectness", "rpn_boxes", "roi_classes", "roi_boxes")
MAX_CONFUSIONS = 5
ESTIMATES = (("label_noise", "label noise"), ("box_noise", "box noise"), ("keep", "raw box kept"))
MIN_SECONDS_BETWEEN_UPDATES = 0.5  # of a panel in a notebook, which each update sends again


class PanelState:
    """The latest value of each figure of a training."""

    def __init__(self, epochs: int):
        self._latest: Line = {"epochs": epochs}

    def update(self, line: Line) -> "RenderableType":
        """Add the figures of a line of the log and return the panel."""
        self._latest.update(line.get("plan", line))
        return panel(self._latest)


def show_in_notebook(epochs: int) -> Callable[[Line], None] | None:
    """Return a function that shows the log of a training below a notebook's cell.

    Return None outside of notebooks.
    """
    from rich.console import Console

    if not Console().is_jupyter:
        return None
    from IPython.display import display  # every notebook has it

    state = PanelState(epochs)
    handle = display(state.update({}), display_id=True)
    last_update = -math.inf

    def show(line: Line) -> None:
        nonlocal last_update
        if "note" in line:
            display({"text/plain": line["note"]}, raw=True)
            return
        if "summary" in line:
            handle.update(state.update({}))
            return
        drawn = state.update(line)
        if monotonic() - last_update >= MIN_SECONDS_BETWEEN_UPDATES:
            last_update = monotonic()
            handle.update(drawn)

    return show


def panel(latest: Line) -> "RenderableType":
    """Draw the state of a training from the latest value of each figure and its plan."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    step: int = latest["step"] if "step" in latest else latest.get("first_step", 0)
    steps: int = latest.get("steps", 0)
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column()
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(
        f"epoch {latest.get('epoch', 0) + 1} of {latest['epochs']}",
        ProgressBar(total=max(steps, 1), completed=step),
        f"step {step:,} of {steps:,}{_speed(latest)}",
    )
    body = Table.grid(padding=(0, 2))
    body.add_column(style="bold")
    body.add_column()
    for title, figures in rows(latest):
        text = Text(" · ").join(Text(f"{name} {value}") for name, value in figures)
        body.add_row(title, text)
    return Panel(Group(head, body), title="boxmend train", title_align="left")


def rows(latest: Line) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the figures to show under their titles; unknown figures are left out."""
    losses = [
        (_words(name), f"{latest[name]:.3f}") for name in LOSSES if _is_number(latest.get(name))
    ]
    shares = []
    if "unsure" in latest:
        flagged = latest["relabelled"] + latest["unsure"]
        shares += [("flagged", f"{flagged:.1%} ({latest['relabelled']:.1%} relabelled)")]
        shares += [("matched", f"{latest['matched']:.1%}")]
    if _is_number(latest.get("threshold")):
        shares += [("threshold", f"{latest['threshold']:.3f}")]
    known = [(name, word) for name, word in ESTIMATES if _is_number(latest.get(name))]
    noise = [(word, _estimate(latest, name)) for name, word in known]
    val = [
        (_words(name.removeprefix("val_")), f"{value:.3f}")
        for name, value in latest.items()
        if name.startswith("val_") and _is_number(value)
    ]
    sections = (("losses", losses), ("annotations", shares), ("estimates", noise), ("val", val))
    return [(title, figures) for title, figures in sections if figures]


def describe_noise(noise: Line) -> Iterator[tuple[str, str]]:
    """Yield the estimated noise of a run: its rates, and its most frequent confusions."""
    for name, word in ESTIMATES:
        if name in noise:
            yield word, _estimate(noise, name)
    for pair in noise.get("confusions", [])[:MAX_CONFUSIONS]:
        share, number = f"{pair['share']:.0%}", f"{pair['annotations']:,}"
        yield f"called {pair['called']}", f"{share} are {pair['truly']} ({number} annotations)"


def _estimate(latest: Line, name: str) -> str:
    """Format a share, with its bounds if there are any."""
    text = f"{latest[name]:.1%}"
    low, high = latest.get(f"{name}_low"), latest.get(f"{name}_high")
    return text if low is None or high is None else f"{text} ({low:.0%} to {high:.0%})"


def format_line(line: Line) -> str:
    """Format a line of the log: epoch and step, figures, speed, and the time left."""
    parts = [f"epoch {line.get('epoch', 0) + 1}, step {line.get('step', 0):,}"]
    for name, value in line.items():
        if name not in PROGRESS_KEYS and _is_number(value):
            parts.append(f"{_words(name)} {value:.4g}")
    return " · ".join(parts) + _speed(line)


def _speed(line: Line) -> str:
    if "images_per_second" not in line:
        return ""
    minutes, seconds = divmod(round(line["seconds_left"]), 60)
    hours, minutes = divmod(minutes, 60)
    left = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
    return f" · {line['images_per_second']:,.0f} images/s · {left} left"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and value == value  # not NaN
