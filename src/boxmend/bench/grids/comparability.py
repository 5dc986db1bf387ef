"""Check that results are comparable: they may differ only in what a table compares.

Method, noise, seed, the settings of a variant and of the method, and paths of data may differ. The
following must be equal:

- in all results: clean training data, test data, versions, hardware, and the settings of all
  methods (SHARED_SETTINGS);
- in one noise setting and seed: the noisy data. Without noise they are equal for all seeds. A
  second stage is exempt, since it is trained on mended annotations;
- in one method: every setting that it uses, except noise rates, which depend on the column.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from msgspec import to_builtins

from boxmend.bench.grids.results import Result
from boxmend.bench.grids.table_spec import TWO_STAGE
from boxmend.errors import DataError, UsageError
from boxmend.runs.settings.training import METHOD_SECTIONS, PUBLISHED
from boxmend.web.text import display_text

SHARED_SETTINGS = (
    *("detector", "weights", "image_size", "epochs", "batch_size", "precision"),
    *("proposals", "pre_nms", "rois", "keep_best"),
)
"""Settings that apply to all methods."""
COMPARED_SETTINGS = frozenset({"method", "preset", "seed", "label_noise", "box_noise"})
"""Settings that a table compares."""
NEUTRAL_SETTINGS = frozenset({"checkpoint_every", "log_every", "strict"})
"""Settings that change no figure."""
USED_SECTIONS: dict[str, str | None] = {**METHOD_SECTIONS, TWO_STAGE: "mend", "baseline": None}
"""The section of the settings that a method uses; an unknown method uses `published`."""
MAX_NAMED_CELLS = 3  # in a message
MAX_LISTED_VALUES = 12  # in a message
ABSENT = "(not set)"
UNSET = "None"  # counts as absent: results of earlier versions lack newer settings
ADDED_SETTINGS = {
    "settings.published.judged_classes": "all",
    "settings.published.judged_box": "matched",
    "settings.mend.box_noise_shape": "uniform",
    "settings.mend.min_object_score": "0.0",
}
"""Settings by their places, with the values that results before them imply."""

Place = tuple[Result, dict[str, str]]
"""A result, and its values by their dotted places."""


@dataclass(frozen=True)
class ResultDifference:
    """A value in which results differ."""

    where: str
    """Its dotted place in a result, as --where takes it."""
    among: str
    """The results that must agree: all (""), those of a method, or those of one noise and seed."""
    cells: Mapping[str, tuple[str, ...]]
    """Cells by value, the most frequent value first."""

    def describe(self) -> str:
        """Return the difference as one line of text."""
        parts = [f"{value} in {_list_cells(cells)}" for value, cells in self.cells.items()]
        return f"{self.where}{self.among}: {'; '.join(parts)}"


def find_differences(results: Iterable[Result]) -> list[ResultDifference]:
    """List the differences that make results incomparable; failed results are ignored."""
    finished = [result for result in results if result.error is None]
    places = [(result, _flatten(to_builtins(result))) for result in finished]
    return [
        *_find_shared_differences(places),
        *_compare_within_groups(
            [place for place in places if place[0].method != TWO_STAGE],
            *("data.noisy_sha256", _describe_noise_and_seed, " with {}"),
        ),
        *_find_method_differences(places),
    ]


def refuse_differences(differences: Sequence[ResultDifference]) -> None:
    """Raise a DataError that lists the differences, if there are any."""
    if not differences:
        return
    lines = "".join(f"\n  {difference.describe()}" for difference in differences)
    value = next(iter(differences[0].cells))
    raise DataError(
        f"the results differ in more than method, noise and seed:{lines}\n"
        f"select by --where, like --where '{differences[0].where}={value}', or use --mixed"
    )


def filter_results(results: Sequence[Result], conditions: Sequence[str]) -> list[Result]:
    """Return the results that meet all conditions PLACE=VALUE, like versions.torch=2.11.0.

    A setting that a variant changes always meets its condition. Raises a UsageError for a place or
    a value that no result has.
    """
    for condition in conditions:
        place, equals, value = condition.partition("=")
        if not equals:
            raise UsageError(f"--where {condition}: expected PLACE=VALUE, like versions.torch=2.11")
        leaves = [_flatten(to_builtins(result)) for result in results]
        values = [texts.get(place, ABSENT) for texts in leaves]
        if results and value not in values:
            known = _describe_values(leaves, place)
            raise UsageError(f"--where {display_text(condition)}: no result has it; {known}")
        results = [
            result
            for result, text in zip(results, values, strict=True)
            if text == value or place.removeprefix("settings.") in result.variant
        ]
    return list(results)


def _describe_values(leaves: Sequence[Mapping[str, str]], place: str) -> str:
    """Return the values at a place as text, or similar places if no result has it."""
    values = sorted({texts[place] for texts in leaves if place in texts})
    if values:
        more = (
            f" and {len(values) - MAX_LISTED_VALUES} more"
            if len(values) > MAX_LISTED_VALUES
            else ""
        )
        listed = ", ".join(value or "nothing" for value in values[:MAX_LISTED_VALUES])
        return f"at {place} they have {listed}{more}"
    known = sorted({name for texts in leaves for name in texts})
    near = get_close_matches(place, known, n=3, cutoff=0.5)
    usual = [name for name in ("method", "hardware", "versions.torch") if name in known]
    return f"there is no such place; there are {', '.join(near or usual)} and others"


def _find_shared_differences(places: Sequence[Place]) -> Iterator[ResultDifference]:
    names = ["data.train_sha256", "data.val_sha256", "hardware"]
    names += sorted({name for _, leaves in places for name in leaves if _is_version(name)})
    names += [f"settings.{name}" for name in SHARED_SETTINGS]
    for name in names:
        yield from _compare_within_groups(places, name, lambda result: "", "")


def _find_method_differences(places: Sequence[Place]) -> Iterator[ResultDifference]:
    names = {
        name for result, leaves in places for name in leaves if _is_method_setting(result, name)
    }
    for name in sorted(names):
        of_methods = [place for place in places if _is_method_setting(place[0], name)]
        yield from _compare_within_groups(of_methods, name, lambda result: result.method, " of {}")


def _compare_within_groups(
    places: Sequence[Place], name: str, group: Callable[[Result], Hashable], among: str
) -> Iterator[ResultDifference]:
    """Yield the differences at a place within each group of results."""
    setting = name.removeprefix("settings.")
    groups: dict[Hashable, dict[str, list[str]]] = {}
    for result, leaves in places:
        if setting not in result.variant:
            values = groups.setdefault(group(result), {})
            value = leaves.get(name, ADDED_SETTINGS.get(name, UNSET))
            values.setdefault(ABSENT if value == UNSET else value, []).append(result.cell)
    for key, values in groups.items():
        if len(values) > 1:
            by_number = sorted(values.items(), key=lambda item: -len(item[1]))
            cells = {value: tuple(cells) for value, cells in by_number}
            yield ResultDifference(name, among.format(key), cells)


def _describe_noise_and_seed(result: Result) -> str:
    """Return the noise and seed of a result, which determine its noisy data."""
    noise = result.noise
    if noise.labels is None and noise.boxes is None and noise.presence is None:
        return "no noise"
    presence = f", {noise.presence}" if noise.presence else ""
    return f"labels {noise.labels}, boxes {noise.boxes}{presence}, seed {result.seed}"


def _is_version(name: str) -> bool:
    return name.startswith("versions.")


def _is_method_setting(result: Result, name: str) -> bool:
    """Return whether a setting is specific to the method of a result."""
    if not name.startswith("settings."):
        return False
    section, dot, _ = name.removeprefix("settings.").partition(".")
    if not dot:
        return section not in (*SHARED_SETTINGS, *COMPARED_SETTINGS, *NEUTRAL_SETTINGS)
    return section in ("optimisation", section_of(result.method))


def section_of(method: str) -> str | None:
    """Return the section of the settings that a method uses."""
    return USED_SECTIONS.get(method, PUBLISHED)


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values by their dotted names, as text on one line."""
    leaves: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            leaves |= _flatten(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = display_text(str(value))
    return leaves


def _list_cells(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - MAX_NAMED_CELLS} more" if len(cells) > MAX_NAMED_CELLS else ""
    return f"{', '.join(cells[:MAX_NAMED_CELLS])}{more}"
