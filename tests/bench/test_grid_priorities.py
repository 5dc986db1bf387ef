"""What is run first: the must-list of the comparison on photographs, and the order of cells."""

import pytest

from boxmend.bench.grids.cells import Cell, cells_of
from boxmend.bench.grids.layouts import LAYOUTS, layout
from boxmend.bench.grids.priorities import PRIORITIES, by_priority, priority, with_priority
from boxmend.errors import UsageError

FORTY = ("symmetric:0.4", "uniform:0.4")


def names(cells: list[Cell]) -> list[str]:
    return [cell.name for cell in cells]


def test_44_cells_must_be_run() -> None:
    must = with_priority(cells_of(layout("core"), (0, 1, 2)), ["must"])
    # Clean, ten methods at 40/40, four in three settings, mend on clean data; then two further
    # seeds of clean, of baseline in four settings and of mend in five.
    assert len(must) == (1 + 10 + 4 * 3 + 1) + 2 * (1 + 4 + 5) == 44
    assert {cell.method for cell in must if cell.seed} == {"baseline", "mend"}


def test_other_tables_have_no_must_of_their_own() -> None:
    core = set(cells_of(layout("core"), (0, 1, 2)))
    for name in LAYOUTS:
        cells = cells_of(layout(name), (0, 1, 2))
        assert {cell for cell in cells if priority(cell) == "must"} <= core


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (Cell(*FORTY, "disco"), "must"),
        (Cell(*FORTY, "disco", (), 1), "could"),
        (Cell(*FORTY, "mend", (), 2), "must"),
        (Cell(*FORTY, "two-stage"), "should"),
        (Cell(*FORTY, "two-stage", (), 1), "could"),
        (Cell(None, "uniform:0.4", "cm"), "should"),
        (Cell(None, "uniform:0.2", "cm"), "could"),
        (Cell("symmetric:0.6", None, "mend"), "should"),
        (Cell("symmetric:0.6", "uniform:0.2", "mend"), "could"),
        (Cell("pair:0.3", None, "lr"), "should"),
        (Cell("symmetric:0.4", None, "disco"), "should"),
        (Cell("symmetric:0.4", None, "br"), "could"),  # which has no boxes to mend there
        (Cell(None, "uniform:0.4", "lr"), "could"),
        (Cell(None, "uniform:0.4", "br"), "should"),
        (Cell("symmetric:0.4", None, "mend-paper", (("published.queue_length", 64),)), "could"),
        (Cell(None, "jitter:0.4", "mend"), "could"),
        (Cell(None, None, "mend", presence="missing:0.4"), "could"),
    ],
)
def test_a_cell_is_worth_what_the_comparison_says(cell: Cell, told: str) -> None:
    assert priority(cell) == told


def test_what_others_are_compared_with_goes_first_and_then_the_longest() -> None:
    ordered = names(by_priority(cells_of(layout("core"), (0, 1))))
    assert ordered[:5] == [
        "label40-box40-mend-0",
        "label0-box0-baseline-0",
        "label40-box40-baseline-0",
        "label40-box40-co-teaching-0",
        "label40-box40-ca-bbc-0",
    ]
    assert ordered.index("label20-box20-ca-bbc-0") < ordered.index("label40-box40-mend-1")
    assert ordered.index("label0-box40-mend-1") < ordered.index("label40-box40-co-teaching-1")


def test_of_what_could_be_run_box_noise_and_missing_annotations_go_first() -> None:
    every = (*cells_of(layout("presence"), (0, 1)), *cells_of(layout("box-noise"), (0,)))
    last = cells_of(layout("sensitivity-n"), (0,))
    ordered = names(with_priority(by_priority([*last, *every]), ["could"]))
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


def test_worth_falls_from_the_first_cell_to_the_last() -> None:
    every = dict.fromkeys(cell for name in LAYOUTS for cell in cells_of(layout(name), (0, 1)))
    ordered = by_priority(list(every))
    assert set(ordered) == set(every)
    ranks = [PRIORITIES.index(priority(cell)) for cell in ordered]
    assert ranks == sorted(ranks)
    must = 24 + 10  # of seeds 0 and 1
    assert set(names(ordered)[must : must + 2]) == {
        "label40-box40-baseline~x2-0",
        "label40-box40-two-stage-0",
    }


def test_a_cell_stands_after_the_one_it_needs_whatever_they_are_worth() -> None:
    cells = cells_of(layout("two-stage"), (0, 1))
    kept = names(with_priority(by_priority(cells), ["should"]))
    assert kept.index("label40-box40-mend-0") < kept.index("label40-box40-two-stage-0")
    assert "label40-box40-mend-1" not in kept


def test_a_word_that_is_none_of_the_three_is_refused() -> None:
    cells = cells_of(layout("core"), (0,))
    with pytest.raises(UsageError, match=r"--worth 'may': expected must, should, could"):
        with_priority(cells, ["may"])
    with pytest.raises(UsageError, match="--worth could leaves no cell"):
        with_priority(cells, ["could"])
    assert with_priority(cells, []) == cells
