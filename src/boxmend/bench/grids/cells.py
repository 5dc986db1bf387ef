"""Cells: a cell is one training; its name states noise, method, variant and seed.

label40-box40-mend-0            symmetric label noise 0.4, uniform box noise 0.4, seed 0
pair40-box0-lr-0                pair label noise
label0-gaussian20-br-1          a standard deviation of 0.2
label0-oamil40-disco-0          OA-MIL's box noise, `jitter` of `boxmend noise`
label0-box0-missing20-mend-0    one annotation in five is missing
label0-box0-una20-mend-0        the noise of UNA, of all kinds, at 20 %
label40-box40-mend-paper~N64-0  a variant, after the method
label40-box40-ca-bbc~average-0  a variant of several settings, or of a value, that has a name
label0-box0-baseline-0          the clean reference
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from boxmend.bench.grids.table_spec import (
    AVERAGED_WEIGHTS,
    COMMON_RECIPE,
    PUBLISHED_RECIPE,
    TRUE_RATE,
    TWICE_EPOCHS,
    TWO_STAGE,
    TableLayout,
    Variant,
    cell_specs,
    noise_rate,
)
from boxmend.data.noise import NoiseSettings, make_preset
from boxmend.errors import UsageError

LABEL_WORDS = {"symmetric": "label", "pair": "pair"}
BOX_WORDS = {"uniform": "box", "gaussian": "gaussian", "jitter": "oamil"}
SETTING_WORDS = {
    "published.queue_length": "N",
    "published.alpha": "alpha",
    "published.fit_threshold": "TCM",
    "published.confidence": "TR",
    "published.judged_classes": "classes",
    "published.judged_box": "at",
    "published.discarded": "discarded",
    "batch_size": "batch",
    "warm_up": "warmup",
    "label_noise": "label",
    "box_noise": "box",
    "epochs": "epochs",
    "mend.missing_min_score": "missing",
    "mend.box_noise_shape": "shape",
    "mend.min_object_score": "objects",
}
"""The words for settings in names of cells; other settings use the last part of their name."""
RECIPE_WORDS = {
    "common": COMMON_RECIPE,
    "published": PUBLISHED_RECIPE,
    "average": AVERAGED_WEIGHTS,
}
"""The words for settings that have one name together if a variant has all of them."""
MAX_LISTED_NAMES = 8  # in a message


@dataclass(frozen=True)
class Cell:
    """One training: noise, method, variant and seed; the noise has the same seed."""

    labels: str | None
    """KIND:RATE as in `boxmend noise`; None for clean labels."""
    boxes: str | None
    method: str
    variant: tuple[tuple[str, bool | int | float | str], ...] = ()
    """Settings by their dotted names, as in the layout."""
    seed: int = 0
    presence: str | None = None
    """missing:RATE, spurious:RATE, or una:RATE for all kinds together; None if neither."""

    @property
    def name(self) -> str:
        """Return the name of the cell, of its folder and of its lines of results."""
        return f"{self.noise_name}-{self.method_name}-{self.seed}"

    @property
    def noise_name(self) -> str:
        """Return the part of the name about the noise."""
        words = [
            _noise_word(self.labels, LABEL_WORDS, "label"),
            _noise_word(self.boxes, BOX_WORDS, "box"),
        ]
        if self.presence is not None:
            words.append(_noise_word(self.presence, {}, ""))
        return "-".join(words)

    @property
    def method_name(self) -> str:
        """Return the part of the name about method and variant."""
        variant = variant_word(dict(self.variant))
        return f"{self.method}~{variant}" if variant else self.method

    @property
    def is_clean(self) -> bool:
        """Whether the cell has no noise."""
        return self.labels is None and self.boxes is None and self.presence is None

    @property
    def noise(self) -> NoiseSettings:
        """Return the noise of the cell as in `boxmend noise`; clean data have no seed."""
        seed = 0 if self.is_clean else self.seed
        return noise_settings(self.labels, self.boxes, self.presence, seed)

    @property
    def noise_folder(self) -> str:
        """Return the folder of its training data, shared by all methods."""
        return self.noise_name if self.is_clean else f"{self.noise_name}-{self.seed}"

    @property
    def needs(self) -> "Cell | None":
        """Return the cell on whose mended annotations this one is trained, if any."""
        if self.method != TWO_STAGE:
            return None
        return Cell(self.labels, self.boxes, "mend", (), self.seed, self.presence)


def noise_settings(
    labels: str | None, boxes: str | None, presence: str | None, seed: int
) -> NoiseSettings:
    """Return the settings of `boxmend noise` for the noise of a cell."""
    if presence and presence.startswith("una:"):
        return make_preset(presence, seed)
    missing, spurious = (
        noise_rate(presence) if presence and presence.startswith(f"{kind}:") else 0.0
        for kind in ("missing", "spurious")
    )
    return NoiseSettings(labels, boxes, missing, spurious, seed=seed)


def list_table_cells(layout: TableLayout, seeds: Sequence[int]) -> list[Cell]:
    """List the cells of a table, each once, row by row.

    A cell comes after the one that it needs, which is added if the table lacks it.
    """
    cells: dict[Cell, None] = {}
    for seed in seeds:
        for spec in cell_specs(layout):
            variant = tuple(sorted(spec.variant.items()))
            cell = Cell(spec.labels, spec.boxes, spec.method, variant, seed, spec.presence)
            if cell.needs is not None:
                cells.setdefault(cell.needs)
            cells.setdefault(cell)
    return list(cells)


def choose_cells(
    cells: Sequence[Cell], *, only: Sequence[str] = (), methods: Sequence[str] = ()
) -> list[Cell]:
    """Return the cells whose name matches a pattern and whose method is listed, and their needs.

    Without patterns, or without methods, all cells match. Raises a UsageError for a pattern or a
    method of no cell.
    """
    known = list(dict.fromkeys(cell.method for cell in cells))
    for method in methods:
        if method not in known:
            raise UsageError(f"there is no method {method!r} here; there are {', '.join(known)}")
    for pattern in only:
        if not any(fnmatchcase(cell.name, pattern) for cell in cells):
            names = ", ".join(cell.name for cell in cells[:MAX_LISTED_NAMES])
            more = (
                f" and {len(cells) - MAX_LISTED_NAMES} more"
                if len(cells) > MAX_LISTED_NAMES
                else ""
            )
            raise UsageError(f"--only {pattern}: no cell has such a name; there are {names}{more}")
    kept = [cell for cell in cells if is_requested(cell, only=only, methods=methods)]
    if not kept:
        raise UsageError("--only and --methods have no cell in common; change one of them")
    return _with_needs(kept)


def is_requested(cell: Cell, *, only: Sequence[str] = (), methods: Sequence[str] = ()) -> bool:
    """Return whether a cell is requested, and not only needed by another one."""
    is_named = not only or any(fnmatchcase(cell.name, pattern) for pattern in only)
    return is_named and (not methods or cell.method in methods)


def variant_word(variant: Variant) -> str:
    """Return a short name of a variant: N64, alpha0.3, known, average; "" for an empty one."""
    if dict(variant) == {"label_noise": TRUE_RATE, "box_noise": TRUE_RATE}:
        return "known"
    rest, words = dict(variant), []
    for word, recipe in RECIPE_WORDS.items():
        if recipe.items() <= rest.items():
            words.append(word)
            rest = {name: value for name, value in rest.items() if name not in recipe}
    return "+".join([*words, *(_setting_word(name, rest[name]) for name in sorted(rest))])


def resolved_variant(
    variant: Variant, rates: Mapping[str, float], epochs: int
) -> dict[str, object]:
    """Replace TRUE_RATE and TWICE_EPOCHS in a variant by the numbers of the cell."""
    values: dict[str, object] = {}
    for name, value in variant.items():
        if value == TRUE_RATE and name in rates:
            values[name] = rates[name]
        elif value == TWICE_EPOCHS and name == "epochs":
            values[name] = 2 * epochs
        else:
            values[name] = value
    return values


def _with_needs(cells: Iterable[Cell]) -> list[Cell]:
    cells_and_needs: dict[Cell, None] = {}
    for cell in cells:
        if cell.needs is not None:
            cells_and_needs.setdefault(cell.needs)
        cells_and_needs.setdefault(cell)
    return list(cells_and_needs)


def _setting_word(name: str, value: object) -> str:
    word = SETTING_WORDS.get(name, name.rpartition(".")[2].replace("_", ""))
    if value == TWICE_EPOCHS:
        return "x2" if name == "epochs" else f"{word}x2"
    if name in ("label_noise", "box_noise") and isinstance(value, int | float):
        return f"{word}{100 * value:g}"
    return f"{word}{value:g}" if isinstance(value, int | float) else f"{word}-{value}"


def _noise_word(noise: str | None, words: Mapping[str, str], word_without_noise: str) -> str:
    if noise is None:
        return f"{word_without_noise}0"
    kind, _, amount = noise.partition(":")
    return f"{words.get(kind, kind)}{100 * float(amount):g}"
