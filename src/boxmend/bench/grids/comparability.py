"""Check that results are comparable: they may differ only in what a table compares.

Method, noise, seed, the settings of a variant and of the method, and paths of data may differ. The
following must be equal:

- in all results: clean training data, test data, versions, hardware, and the settings of all
  methods (SHARED);
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

SHARED = (
    *("detector", "weights", "image_size", "epochs", "batch_size", "precision"),
    *("proposals", "pre_nms", "rois", "keep_best"),
)
"""Settings that apply to all methods."""
FREE = frozenset({"method", "preset", "seed", "label_noise", "box_noise"})
"""Settings that a table compares."""
IDLE = frozenset({"checkpoint_every", "log_every", "strict"})
"""Settings that change no figure."""
USED_SECTIONS: dict[str, str | None] = {**METHOD_SECTIONS, TWO_STAGE: "mend", "baseline": None}
"""The section of the settings that a method goes by; of a method unknown here, `published`."""
MAX_NAMED_CELLS = 3  # in a message
MAX_LISTED_VALUES = 12  # in a message
ABSENT = "(not set)"
UNSET = "None"  # counts as absent, as in results from before the setting existed

Place = tuple[Result, dict[str, str]]
"""A result, and its values by their dotted places."""


@dataclass(frozen=True)
class ResultDifference:
    """A value in which results differ."""

    where: str
    """Its dotted place in a result, as --where takes it."""
    among: str
    """Which results must agree: all (""), those of a method, or those of one noise and seed."""
    cells: Mapping[str, tuple[str, ...]]
    """Cells by value, the most frequent value first."""

    def describe(self) -> str:
        """Return the difference as one line of text."""
        parts = [f"{value} in {_list_cells(cells)}" for value, cells in self.cells.items()]
        return f"{self.where}{self.among}: {'; '.join(parts)}"


def find_differences(results: Iterable[Result]) -> list[ResultDifference]:
    """List the differences that make results incomparable; failed results are ignored."""
    finished = [one for one in results if one.error is None]
    places = [(one, _leaves(to_builtins(one))) for one in finished]
    return [
        *_shared_differences(places),
        *_compare_within_groups(
            [place for place in places if place[0].method != TWO_STAGE],
            *("data.noisy_sha256", _noise_and_seed, " with {}"),
        ),
        *_method_differences(places),
    ]


def refuse_differences(found: Sequence[ResultDifference]) -> None:
    """Raise a DataError that lists the differences, if there are any."""
    if not found:
        return
    listing = "".join(f"\n  {one.describe()}" for one in found)
    value = next(iter(found[0].cells))
    raise DataError(
        f"the results differ in more than method, noise and seed:{listing}\n"
        f"select by --where, like --where '{found[0].where}={value}', or use --mixed"
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
        leaves = [_leaves(to_builtins(one)) for one in results]
        told = [one.get(place, ABSENT) for one in leaves]
        if results and value not in told:
            raise UsageError(
                f"--where {display_text(condition)}: no result has it; {_there(leaves, place)}"
            )
        results = [
            one
            for one, text in zip(results, told, strict=True)
            if text == value or place.removeprefix("settings.") in one.variant
        ]
    return list(results)


def _there(leaves: Sequence[Mapping[str, str]], place: str) -> str:
    """Return the values at a place as text, or similar places if no result has it."""
    values = sorted({one[place] for one in leaves if place in one})
    if values:
        more = (
            f" and {len(values) - MAX_LISTED_VALUES} more"
            if len(values) > MAX_LISTED_VALUES
            else ""
        )
        listed = ", ".join(value or "nothing" for value in values[:MAX_LISTED_VALUES])
        return f"at {place} they have {listed}{more}"
    known = sorted({name for one in leaves for name in one})
    near = get_close_matches(place, known, n=3, cutoff=0.5)
    usual = [name for name in ("method", "hardware", "versions.torch") if name in known]
    return f"there is no such place; there are {', '.join(near or usual)} and others"


def _shared_differences(places: Sequence[Place]) -> Iterator[ResultDifference]:
    names = ["data.train_sha256", "data.val_sha256", "hardware"]
    names += sorted({name for _, leaves in places for name in leaves if _is_version(name)})
    names += [f"settings.{name}" for name in SHARED]
    for name in names:
        yield from _compare_within_groups(places, name, lambda one: "", "")


def _method_differences(places: Sequence[Place]) -> Iterator[ResultDifference]:
    names = {name for one, leaves in places for name in leaves if _is_method_setting(one, name)}
    for name in sorted(names):
        concerned = [place for place in places if _is_method_setting(place[0], name)]
        yield from _compare_within_groups(concerned, name, lambda one: one.method, " of {}")


def _compare_within_groups(
    places: Sequence[Place], name: str, group: Callable[[Result], Hashable], among: str
) -> Iterator[ResultDifference]:
    """Yield the differences at a place within each group of results."""
    setting = name.removeprefix("settings.")
    groups: dict[Hashable, dict[str, list[str]]] = {}
    for one, leaves in places:
        if setting not in one.variant:
            values = groups.setdefault(group(one), {})
            value = leaves.get(name, UNSET)
            values.setdefault(ABSENT if value == UNSET else value, []).append(one.cell)
    for key, values in groups.items():
        if len(values) > 1:
            by_number = sorted(values.items(), key=lambda item: -len(item[1]))
            cells = {value: tuple(cells) for value, cells in by_number}
            yield ResultDifference(name, among.format(key), cells)


def _noise_and_seed(one: Result) -> str:
    """Return the noise and seed of a result, which determine its noisy data."""
    noise = one.noise
    if noise.labels is None and noise.boxes is None and noise.presence is None:
        return "no noise"
    presence = f", {noise.presence}" if noise.presence else ""
    return f"labels {noise.labels}, boxes {noise.boxes}{presence}, seed {one.seed}"


def _is_version(name: str) -> bool:
    return name.startswith("versions.")


def _is_method_setting(one: Result, name: str) -> bool:
    """Return whether a setting is specific to the method of a result."""
    if not name.startswith("settings."):
        return False
    section, dot, _ = name.removeprefix("settings.").partition(".")
    if not dot:
        return section not in (*SHARED, *FREE, *IDLE)
    return section in ("optimisation", section_of(one.method))


def section_of(method: str) -> str | None:
    """Return the section of the settings that a method uses."""
    return USED_SECTIONS.get(method, PUBLISHED)


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested values by their dotted names, as text on one line."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = display_text(str(value))
    return found


def _list_cells(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - MAX_NAMED_CELLS} more" if len(cells) > MAX_NAMED_CELLS else ""
    return f"{', '.join(cells[:MAX_NAMED_CELLS])}{more}"
