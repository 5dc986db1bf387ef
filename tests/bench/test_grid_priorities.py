"""Priorities of cells, and the order in which they run."""

import pytest

from boxmend.bench.grids.cells import Cell, list_table_cells
from boxmend.bench.grids.layouts import LAYOUTS, get_layout
from boxmend.bench.grids.priorities import PRIORITIES, priority, sort_by_priority, with_priority
from boxmend.errors import UsageError

FORTY = ("symmetric:0.4", "uniform:0.4")


def names(cells: list[Cell]) -> list[str]:
    return [cell.name for cell in cells]


def test_44_cells_have_priority_1() -> None:
    first = with_priority(list_table_cells(get_layout("core"), (0, 1, 2)), [1])
    # Clean, ten methods at 40/40, four in three settings, mend on clean data; then two further
    # seeds of clean, of baseline in four settings and of mend in five.
    assert len(first) == (1 + 10 + 4 * 3 + 1) + 2 * (1 + 4 + 5) == 44
    assert {cell.method for cell in first if cell.seed} == {"baseline", "mend"}


def test_all_cells_of_priority_1_are_in_core() -> None:
    core = set(list_table_cells(get_layout("core"), (0, 1, 2)))
    for name in LAYOUTS:
        cells = list_table_cells(get_layout(name), (0, 1, 2))
        assert {cell for cell in cells if priority(cell) == 1} <= core


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (Cell(*FORTY, "disco"), 1),
        (Cell(*FORTY, "disco", (), 1), 3),
        (Cell(*FORTY, "mend", (), 2), 1),
        (Cell(*FORTY, "two-stage"), 2),
        (Cell(*FORTY, "two-stage", (), 1), 3),
        (Cell(None, "uniform:0.4", "cm"), 2),
        (Cell(None, "uniform:0.2", "cm"), 3),
        (Cell("symmetric:0.6", None, "mend"), 2),
        (Cell("symmetric:0.6", "uniform:0.2", "mend"), 3),
        (Cell("pair:0.3", None, "lr"), 2),
        (Cell("symmetric:0.4", None, "disco"), 2),
        (Cell("symmetric:0.4", None, "br"), 3),  # there are no noisy boxes to repair
        (Cell(None, "uniform:0.4", "lr"), 3),
        (Cell(None, "uniform:0.4", "br"), 2),
        (Cell("symmetric:0.4", None, "mend-paper", (("published.queue_length", 64),)), 3),
        (Cell(None, "jitter:0.4", "mend"), 3),
        (Cell(None, None, "mend", presence="missing:0.4"), 3),
    ],
)
def test_a_cell_has_the_priority_of_its_group(cell: Cell, expected: int) -> None:
    assert priority(cell) == expected


def test_references_go_first_and_then_the_longest_trainings() -> None:
    ordered = names(sort_by_priority(list_table_cells(get_layout("core"), (0, 1))))
    assert ordered[:5] == [
        "label40-box40-mend-0",
        "label0-box0-baseline-0",
        "label40-box40-baseline-0",
        "label40-box40-co-teaching-0",
        "label40-box40-ca-bbc-0",
    ]
    assert ordered.index("label20-box20-ca-bbc-0") < ordered.index("label40-box40-mend-1")
    assert ordered.index("label0-box40-mend-1") < ordered.index("label40-box40-co-teaching-1")


def test_cells_on_equal_footing_are_first_within_priority_3() -> None:
    cells = list_table_cells(get_layout("equal-footing"), (0, 1))
    cells += list_table_cells(get_layout("box-noise"), (0,))
    ordered = names(with_priority(sort_by_priority(cells), [3]))
    noises = ("label0-box0", "label40-box40", "label20-box20", "label40-box0", "label0-box40")
    assert ordered[:14] == [
        *(f"{noise}-baseline~average-0" for noise in noises),
        *(f"{noise}-baseline~published-0" for noise in noises),
        *("label40-box40-ca-bbc~average-0", "label40-box40-oa-mil~average-0"),
        *("label40-box40-mend-paper~common-0", "label40-box40-mend-paper~common+average-0"),
    ]
    assert ordered[14].startswith("label0-oamil")


def test_box_noise_and_missing_annotations_follow_within_priority_3() -> None:
    every = (
        *list_table_cells(get_layout("presence"), (0, 1)),
        *list_table_cells(get_layout("box-noise"), (0,)),
    )
    last = list_table_cells(get_layout("sensitivity-n"), (0,))
    ordered = names(with_priority(sort_by_priority([*last, *every]), [3]))
    firsts = [
        ordered.index(name)
        for name in (
            "label0-oamil10-mend-paper-0",
            "label0-box0-missing40-mend-0",
            "label20-box0-mend-paper~N64-0",
        )
    ]
    assert firsts == sorted(firsts)
    assert ordered.index("label0-box0-missing20-mend-1") > firsts[1]


def test_priorities_never_rise_along_the_order() -> None:
    every = dict.fromkeys(
        cell for name in LAYOUTS for cell in list_table_cells(get_layout(name), (0, 1))
    )
    ordered = sort_by_priority(list(every))
    assert set(ordered) == set(every)
    ranks = [PRIORITIES.index(priority(cell)) for cell in ordered]
    assert ranks == sorted(ranks)
    first = 24 + 10  # of seeds 0 and 1
    assert set(names(ordered)[first : first + 2]) == {
        "label40-box40-baseline~x2-0",
        "label40-box40-two-stage-0",
    }


def test_a_cell_comes_after_the_one_it_needs_whatever_their_priorities() -> None:
    cells = list_table_cells(get_layout("two-stage"), (0, 1))
    kept = names(with_priority(sort_by_priority(cells), [2]))
    assert kept.index("label40-box40-mend-0") < kept.index("label40-box40-two-stage-0")
    assert "label40-box40-mend-1" not in kept


def test_an_unknown_priority_is_refused() -> None:
    cells = list_table_cells(get_layout("core"), (0,))
    with pytest.raises(UsageError, match=r"--priority 4: expected 1, 2 or 3"):
        with_priority(cells, [4])
    with pytest.raises(UsageError, match="--priority 3 leaves no cell"):
        with_priority(cells, [3])
    assert with_priority(cells, []) == cells
