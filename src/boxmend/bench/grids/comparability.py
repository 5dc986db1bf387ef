"""Whether results can stand in one table: not if they differ in more than what is compared.

What may differ: method, noise, seed, what a variant sets, the settings of the method itself, and
where data lie. What may not:

- over all results: data before noise, data to test on, versions, hardware, and the settings that
  every method shares (SHARED);
- in one noise setting and seed: the noisy data, and without noise those of every seed; a second
  stage alone is trained on other annotations, the mended ones;
- in one method: every setting that it goes by, rates of noise apart, which follow the column.
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
"""Settings that belong to the comparison, and to no method."""
FREE = frozenset({"method", "preset", "seed", "label_noise", "box_noise"})
"""Settings that a table is about."""
IDLE = frozenset({"checkpoint_every", "log_every", "strict"})
"""Settings that change no figure."""
GOES_BY: dict[str, str | None] = {**METHOD_SECTIONS, TWO_STAGE: "mend", "baseline": None}
"""The section of the settings that a method goes by; of a method unknown here, `published`."""
NAMED = 3  # cells that a message names
LISTED = 12  # values that a message lists
ABSENT = "(not there)"
UNSET = "None"  # a setting that is not set is as if it were not there, as before there was one

Place = tuple[Result, dict[str, str]]
"""A result, and its values by their dotted places."""


@dataclass(frozen=True)
class ResultDifference:
    """One thing in which results differ."""

    where: str
    """Its dotted place in a result, which --where takes."""
    among: str
    """Which results have to agree: all, those of a method, or those of one noise and seed."""
    cells: Mapping[str, tuple[str, ...]]
    """Cells by value, the most frequent first."""

    def told(self) -> str:
        """Give one line of text."""
        parts = [f"{value} in {_listed(cells)}" for value, cells in self.cells.items()]
        return f"{self.where}{self.among}: {'; '.join(parts)}"


def find_differences(results: Iterable[Result]) -> list[ResultDifference]:
    """Find what forbids to show results side by side; failed ones show no figure, so never do."""
    finished = [one for one in results if one.error is None]
    places = [(one, _leaves(to_builtins(one))) for one in finished]
    return [
        *_over_all(places),
        *_grouped(
            [place for place in places if place[0].method != TWO_STAGE],
            *("data.noisy_sha256", _noise_and_seed, " with {}"),
        ),
        *_in_methods(places),
    ]


def refuse_differences(found: Sequence[ResultDifference]) -> None:
    """Raise a DataError that says what differs and how to choose, if anything does."""
    if not found:
        return
    listing = "".join(f"\n  {one.told()}" for one in found)
    value = next(iter(found[0].cells))
    raise DataError(
        f"the results differ in more than method, noise and seed:{listing}\n"
        f"choose by --where, like --where '{found[0].where}={value}', or go on with --mixed"
    )


def filter_results(results: Sequence[Result], conditions: Sequence[str]) -> list[Result]:
    """Keep the results that have all values: PLACE=VALUE, like versions.torch=2.11.0.

    What a variant sets is no reason to leave it out. A UsageError tells of a place that no result
    has, or of a value that none has there.
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
    """What there is at a place, or places like it where there is none."""
    values = sorted({one[place] for one in leaves if place in one})
    if values:
        more = f" and {len(values) - LISTED} more" if len(values) > LISTED else ""
        listed = ", ".join(value or "nothing" for value in values[:LISTED])
        return f"at {place} they have {listed}{more}"
    known = sorted({name for one in leaves for name in one})
    near = get_close_matches(place, known, n=3, cutoff=0.5)
    usual = [name for name in ("method", "hardware", "versions.torch") if name in known]
    return f"there is no such place; there are {', '.join(near or usual)} and others"


def _over_all(places: Sequence[Place]) -> Iterator[ResultDifference]:
    names = ["data.train_sha256", "data.val_sha256", "hardware"]
    names += sorted({name for _, leaves in places for name in leaves if _is_version(name)})
    names += [f"settings.{name}" for name in SHARED]
    for name in names:
        yield from _grouped(places, name, lambda one: "", "")


def _in_methods(places: Sequence[Place]) -> Iterator[ResultDifference]:
    names = {name for one, leaves in places for name in leaves if _goes_by(one, name)}
    for name in sorted(names):
        concerned = [place for place in places if _goes_by(place[0], name)]
        yield from _grouped(concerned, name, lambda one: one.method, " of {}")


def _grouped(
    places: Sequence[Place], name: str, group: Callable[[Result], Hashable], among: str
) -> Iterator[ResultDifference]:
    """The values at a place that differ within a group of results."""
    setting = name.removeprefix("settings.")
    groups: dict[Hashable, dict[str, list[str]]] = {}
    for one, leaves in places:
        if setting not in one.variant:
            values = groups.setdefault(group(one), {})
            told = leaves.get(name, UNSET)
            values.setdefault(ABSENT if told == UNSET else told, []).append(one.cell)
    for key, values in groups.items():
        if len(values) > 1:
            by_number = sorted(values.items(), key=lambda item: -len(item[1]))
            cells = {value: tuple(cells) for value, cells in by_number}
            yield ResultDifference(name, among.format(key), cells)


def _noise_and_seed(one: Result) -> str:
    """Results that have to be trained on the same noisy data."""
    noise = one.noise
    if noise.labels is None and noise.boxes is None and noise.presence is None:
        return "no noise"
    presence = f", {noise.presence}" if noise.presence else ""
    return f"labels {noise.labels}, boxes {noise.boxes}{presence}, seed {one.seed}"


def _is_version(name: str) -> bool:
    return name.startswith("versions.")


def _goes_by(one: Result, name: str) -> bool:
    """Whether its method goes by a setting, and not every method."""
    if not name.startswith("settings."):
        return False
    section, dot, _ = name.removeprefix("settings.").partition(".")
    if not dot:
        return section not in (*SHARED, *FREE, *IDLE)
    return section in ("optimisation", section_of(one.method))


def section_of(method: str) -> str | None:
    """Name the part of the settings that a method goes by."""
    return GOES_BY.get(method, PUBLISHED)


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values by their dotted names, as text on one line."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= _leaves(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = display_text(str(value))
    return found


def _listed(cells: Sequence[str]) -> str:
    more = f" and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
    return f"{', '.join(cells[:NAMED])}{more}"
