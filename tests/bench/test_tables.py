"""Tables: which results a square takes, what is best, what is compared and what is published."""

from itertools import product
from typing import Any

import msgspec
import pytest

from boxmend.bench.grids.layouts import LAYOUTS, get_layout
from boxmend.bench.grids.published_tables import all_published, get_published
from boxmend.bench.grids.results import Result
from boxmend.bench.grids.table_spec import (
    AVERAGED_WEIGHTS,
    COMMON_RECIPE,
    GIVEN_TRUE_RATES,
    PUBLISHED_RECIPE,
    TRUE_RATE,
    TWICE_EPOCHS,
    cell_spec,
    cell_specs,
)
from boxmend.bench.grids.tables import GridTable, TableEntry, get_figure, make_table
from boxmend.errors import DataError, UsageError
from tests.bench.grid_results import result, result_of

BOTH = ("symmetric:0.4", "uniform:0.4")


def at(made: GridTable, row: str, column: str) -> TableEntry:
    rows = [one.name for one in made.layout.rows]
    columns = [one.name for one in made.layout.columns]
    return made.entries[rows.index(row)][columns.index(column)]


def core_results() -> list[Result]:
    """Seeds 0 and 1 of the reference, of baseline and of mend at 40/40; ca-bbc failed once."""
    collected = []
    for seed, (clean, base, mended) in enumerate([(0.60, 0.40, 0.50), (0.70, 0.40, 0.60)]):
        collected.append(result("baseline", clean, seed=seed))
        collected.append(result("baseline", base, noise=BOTH, seed=seed))
        collected.append(result("mend", mended, noise=BOTH, seed=seed))
    failed = result("ca-bbc", None, noise=BOTH, seed=1, error="out of memory")
    return [*collected, result("ca-bbc", 0.55, noise=BOTH), failed]


def test_squares_have_means_deviations_and_shares() -> None:
    made = make_table(get_layout("core"), core_results())
    clean, base = at(made, "clean", "label40-box40"), at(made, "baseline", "label40-box40")
    assert clean.ours is not None
    assert clean.ours.mean == pytest.approx(0.65)
    assert clean.gain is None
    assert base.gain is None
    mended = at(made, "mend", "label40-box40")
    assert mended.ours is not None
    assert mended.ours.mean == pytest.approx(0.55)
    assert mended.gain is not None
    assert mended.gain.value == pytest.approx(0.6)  # (0.55 - 0.40) / (0.65 - 0.40)
    assert mended.gain.error == pytest.approx(0.08)
    assert mended.cells == ("symmetric0.4-uniform0.4-mend-0", "symmetric0.4-uniform0.4-mend-1")


def test_the_reference_is_the_same_in_every_column() -> None:
    made = make_table(get_layout("core"), core_results())
    means = [entry.ours.mean for entry in made.entries[0] if entry.ours]
    assert len(means) == 5
    assert len(set(means)) == 1


def test_a_failed_seed_is_counted_and_the_others_shown() -> None:
    made = make_table(get_layout("core"), core_results())
    some = at(made, "ca-bbc", "label40-box40")
    assert some.ours is not None
    assert some.ours.seeds == (0,)
    assert some.failed == ("symmetric0.4-uniform0.4-ca-bbc-1",)
    assert some.gain is not None
    assert some.gain.left_out == (1,)
    assert at(made, "disco", "label40-box40").ours is None


def test_a_failed_cell_shows_no_figure_even_if_it_has_one() -> None:
    noise = ("symmetric:0.4", "uniform:0.4")
    kept = result("disco", 0.5, noise=noise, seed=0)
    failed = result("disco", 0.9, noise=noise, seed=1, error="the disk was full")
    some = at(make_table(get_layout("core"), [kept, failed]), "disco", "label40-box40")
    assert some.values == {0: 0.5}
    assert (some.cells, some.failed) == ((kept.cell,), (failed.cell,))


def test_ties_as_shown_are_all_best_and_the_reference_never_is() -> None:
    others = [
        result("disco", 0.5503, noise=BOTH),  # 55.0 %, as mend has it
        result("br", 0.5494, noise=BOTH),  # 54.9 %
    ]
    made = make_table(get_layout("core"), core_results() + others)
    best = [row.name for row in made.layout.rows if at(made, row.name, "label40-box40").is_best]
    assert best == ["ca-bbc", "disco", "mend"]


def test_a_single_row_is_not_marked_as_best() -> None:
    made = make_table(get_layout("core"), [result("mend", 0.6), result("baseline", 0.5)])
    assert not any(one.is_best for line in made.entries for one in line)


def test_a_row_is_compared_only_where_baseline_and_clean_are_there() -> None:
    results = [one for one in core_results() if one.method != "baseline"]
    assert at(make_table(get_layout("core"), results), "mend", "label40-box40").gain is None
    both = [*core_results(), result("mend", 0.61)]
    assert at(make_table(get_layout("core"), both), "mend", "label0-box0").gain is None


def equal_footing_results(seed: int = 0, lead: float = 0.0) -> list[Result]:
    """One seed at 40/40 in which every method with noise is ahead by `lead`."""
    both = {**COMMON_RECIPE, **AVERAGED_WEIGHTS}
    noisy = [
        ("baseline", {}, 0.30),
        ("baseline", AVERAGED_WEIGHTS, 0.42),
        ("baseline", PUBLISHED_RECIPE, 0.35),
        ("mend-paper", {}, 0.47 + lead),
        ("mend-paper", COMMON_RECIPE, 0.44 + lead),
        ("mend-paper", both, 0.48 + lead),
        ("ca-bbc", AVERAGED_WEIGHTS, 0.50 + lead),
        ("mend", {}, 0.60 + lead),
    ]
    return [
        result("baseline", 0.70, seed=seed),
        result("baseline", 0.72, seed=seed, variant=dict(AVERAGED_WEIGHTS)),
        result("baseline", 0.65, seed=seed, variant=dict(PUBLISHED_RECIPE)),
        *(
            result(method, ap50, noise=BOTH, seed=seed, variant=dict(variant))
            for method, variant, ap50 in noisy
        ),
    ]


@pytest.mark.parametrize(
    ("row", "share"),
    [
        ("baseline, averaged weights", 0.12 / 0.40),
        ("baseline, published recipe", 0.05 / 0.40),
        ("mend-paper", 0.17 / 0.40),
        ("mend-paper (references of its recipe)", 0.12 / 0.30),  # from 0.35 to 0.65
        ("mend-paper, common recipe", 0.14 / 0.40),
        ("mend-paper, common recipe, averaged weights", 0.18 / 0.40),
        ("mend-paper, common recipe, averaged weights (averaged references)", 0.06 / 0.30),
        ("ca-bbc, averaged weights", 0.20 / 0.40),
        ("ca-bbc, averaged weights (averaged references)", 0.08 / 0.30),  # from 0.42 to 0.72
        ("mend", 0.30 / 0.40),
        ("mend (averaged references)", 0.18 / 0.30),
    ],
)
def test_a_row_is_compared_with_its_own_references(row: str, share: float) -> None:
    made = make_table(get_layout("equal-footing"), equal_footing_results())
    gain = at(made, row, "label40-box40").gain
    assert gain is not None
    assert gain.value == pytest.approx(share)


def test_shares_by_other_references_have_their_errors_and_seeds() -> None:
    second = [
        one
        for one in equal_footing_results(seed=1, lead=0.06)
        if (one.method, one.variant) != ("baseline", {})
    ]
    made = make_table(get_layout("equal-footing"), [*equal_footing_results(), *second])
    # 0.18 and 0.24 of 0.30 in both seeds: 0.7, and deviations of 0.1 / sqrt(2) from it.
    gain = at(made, "mend (averaged references)", "label40-box40").gain
    assert gain is not None
    assert gain.value == pytest.approx(0.7)
    assert gain.error == pytest.approx(0.1)
    assert gain.seeds == (0, 1)
    gain = at(made, "mend", "label40-box40").gain
    assert gain is not None
    assert gain.value == pytest.approx(0.75)
    assert (gain.seeds, gain.left_out) == ((0,), (1,))


def test_a_row_without_its_own_references_has_no_share() -> None:
    results = [one for one in equal_footing_results() if one.variant != AVERAGED_WEIGHTS]
    made = make_table(get_layout("equal-footing"), results)
    assert at(made, "mend (averaged references)", "label40-box40").gain is None
    assert at(made, "mend", "label40-box40").gain is not None
    published = at(made, "mend-paper (references of its recipe)", "label40-box40").gain
    assert published is not None


def test_a_row_that_repeats_another_is_not_the_best() -> None:
    alone = [one for one in equal_footing_results() if one.method == "mend"]
    made = make_table(get_layout("equal-footing"), alone)
    assert at(made, "mend (averaged references)", "label40-box40").values == {0: 0.60}
    assert not any(entry.is_best for line in made.entries for entry in line)


def test_a_metric_can_be_chosen_and_an_unknown_one_lists_those_that_exist() -> None:
    made = make_table(get_layout("core"), core_results(), "voc_ap50_11point")
    assert at(made, "ca-bbc", "label40-box40").values == {0: pytest.approx(0.54)}
    with pytest.raises(UsageError, match="there are voc_ap50_11point, voc_ap50_area"):
        make_table(get_layout("core"), core_results(), "ap51")
    for name in ("coco", "refined-labels"):
        with pytest.raises(UsageError, match="shows its own figures"):
            make_table(get_layout(name), [], "voc_ap50_area")


def test_published_figures_stand_only_beside_the_like() -> None:
    results = [
        msgspec.structs.replace(result, scores={"coco_ap75": 0.3}) for result in core_results()
    ]
    assert at(make_table(get_layout("core"), results), "mend-paper", "label40-box40").paper == 0.703
    made = make_table(get_layout("core"), results, "coco_ap75")
    assert all(one.paper is None for line in made.entries for one in line)


def test_a_finished_cell_without_the_figure_is_noted() -> None:
    made = make_table(get_layout("core"), [result("mend", None, noise=BOTH)])
    actual = at(made, "mend", "label40-box40")
    assert actual.ours is None
    assert actual.without == ("symmetric0.4-uniform0.4-mend-0",)


def test_the_paper_wins_back_what_it_is_known_for() -> None:
    made = make_table(get_layout("table1"), [])
    gain = at(made, "mend-paper", "label40-box40").paper_gain
    assert gain == pytest.approx(16.6 / 25.8)
    assert at(made, "mend-paper", "label40-box0").paper_gain == pytest.approx(9.0 / 9.2)
    assert at(made, "mend-paper", "label0-box40").paper_gain == pytest.approx(14.5 / 20.6)


def test_a_record_of_another_detector_has_no_share() -> None:
    made = make_table(get_layout("box-noise"), [])
    assert at(made, "FreeAnchor", "label0-oamil40").paper == 0.416
    assert at(made, "FreeAnchor", "label0-oamil40").paper_gain is None
    # (66.9 - 42.5) / (77.2 - 42.5)
    assert at(made, "SSD-Det", "label0-oamil40").paper_gain == pytest.approx(24.4 / 34.7)


def test_variants_find_their_own_results_and_defaults_the_plain_cell() -> None:
    noise = ("symmetric:0.4", None)
    results = [
        result("mend-paper", 0.5, noise=noise),
        result("mend-paper", 0.6, noise=noise, variant={"published.queue_length": 64.0}),
        result("mend-paper", 0.7, noise=noise, variant={"published.queue_length": 65}),
    ]
    made = make_table(get_layout("sensitivity-n"), results)
    assert at(made, "mend-paper, N 128", "label40-box0").values == {0: 0.5}
    assert at(made, "mend-paper, N 64", "label40-box0").values == {0: 0.6}
    assert at(made, "mend-paper, N 256", "label40-box0").values == {}
    assert len(made.results) == 2


def test_noise_is_known_however_its_rate_is_spelt() -> None:
    results = [result("mend", 0.5, noise=("symmetric:0.40", "uniform:0.400"))]
    made = make_table(get_layout("core"), results)
    assert at(made, "mend", "label40-box40").values == {0: 0.5}
    (one,) = [result("mend", 0.6, noise=("symmetric:0.0", None))]
    assert at(make_table(get_layout("core"), [one]), "mend", "label0-box0").values == {0: 0.6}


def test_missing_and_spurious_annotations_have_columns_of_their_own() -> None:
    every = [result("mend", 0.7), result("baseline", 0.65, seed=1)]
    every += [result("mend", 0.6, noise=(None, None, "missing:0.40"))]
    every += [result("mend", 0.5, noise=(None, None, "spurious:0.4"))]
    made = make_table(get_layout("presence"), every)
    assert at(made, "mend", "label0-box0-missing40").values == {0: 0.6}
    assert at(made, "mend", "label0-box0-spurious40").values == {0: 0.5}
    assert at(made, "mend", "label0-box0-missing20").values == {}
    assert at(made, "clean", "label0-box0-missing40").values == {1: 0.65}
    assert at(make_table(get_layout("core"), every), "mend", "label0-box0").values == {0: 0.7}


def test_one_cell_by_two_names_is_refused() -> None:
    one = result("mend", 0.5, noise=BOTH)
    other = msgspec.structs.replace(one, cell="another")
    with pytest.raises(DataError, match="another are the same cell with two names"):
        make_table(get_layout("core"), [one, other])


@pytest.mark.parametrize(
    ("mending", "share"),
    [
        ({"labels": {"noise_after": 0.1}}, 0.1),
        ({"labels": {"noise_after": 1}}, 1.0),
        ({"labels": {"noise_after": True}}, None),
        ({"labels": {"noise_after": 10**400}}, None),
        ({"labels": {"noise_after": -0.1}}, None),
        ({"labels": {"noise_after": "much"}}, None),
        ({"labels": [1]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_figure_of_mending_is_a_share_or_nothing(mending: Any, share: float | None) -> None:
    assert get_figure(result(mending=mending), "mending.labels.noise_after") == share


def test_figures_of_mending_fill_their_tables() -> None:
    scores = {"boxes": {"noisy": {"corloc": 0.09}, "matched": {"corloc": 0.2}}}
    made = make_table(
        get_layout("refined-boxes"), [result("mend", 0.5, noise=BOTH, mending=scores)]
    )
    assert at(made, "mend: raw", "label40-box40").values == {0: 0.09}
    assert at(made, "mend: matched", "label40-box40").values == {0: 0.2}
    assert at(made, "mend: final", "label40-box40").without != ()
    assert not any(one.is_best for line in made.entries for one in line)


def test_on_clean_data_the_difference_is_shown() -> None:
    results = [result("baseline", 0.60), result("baseline", 0.62, seed=1)]
    results += [result("mend", 0.59), result("mend", 0.62, seed=1)]
    actual = at(make_table(get_layout("no-harm"), results), "mend", "label0-box0").gain
    assert actual is not None
    assert actual.value == pytest.approx(-0.005)  # -1 and 0 points
    assert actual.error == pytest.approx(0.005)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_can_be_filled(name: str) -> None:
    every = {result_of(spec, 0.5).cell: result_of(spec, 0.5) for spec in cell_specs(LAYOUTS[name])}
    made = make_table(LAYOUTS[name], list(every.values()))
    assert len(made.results) == len(every)
    for row, line in made.lines():
        for column, cell in zip(made.layout.columns, line, strict=True):
            is_score = row.figure is None and column.metric is None
            assert bool(cell.values) == (made.layout.is_run(row, column) and is_score)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_sound(name: str) -> None:
    one = LAYOUTS[name]
    assert len({row.name for row in one.rows}) == len(one.rows)
    assert len({column.name for column in one.columns}) == len(one.columns)
    assert set(one.only) <= {column.name for column in one.columns}
    assert {row for rows in one.only.values() for row in rows} <= {row.name for row in one.rows}
    if one.compare != "none":
        assert "baseline" in {row.name for row in one.rows}
    if one.compare == "share":
        assert one.rows[0].is_clean
    for row in one.rows:
        if one.compare == "share":
            assert set(row.references) <= {other.name for other in one.rows}
        if row.is_share_only:
            repeated = [
                other
                for other in one.rows
                if (other.method, other.variant) == (row.method, row.variant) and other != row
            ]
            assert len(repeated) == 1
            for column in one.columns:
                assert one.is_run(row, column) <= one.is_run(repeated[0], column)
    for asking in cell_specs(one):
        assert (asking.labels or "x:0").partition(":")[0] in ("symmetric", "pair", "x")
        assert (asking.boxes or "x:0").partition(":")[0] in ("uniform", "gaussian", "jitter", "x")


@pytest.mark.parametrize("name", all_published())
def test_published_tables_fit_their_layouts(name: str) -> None:
    records = all_published()[name]
    one = LAYOUTS[name]
    assert set(records.columns) <= {column.name for column in one.columns}
    assert set(records.rows) <= {row.name for row in one.rows}
    assert all(len(row) == len(records.columns) for row in records.rows.values())
    assert records.source


def test_published_figures_are_what_they_were_printed_as() -> None:
    def shown(name: str, row: str, column: str) -> float | None:
        records = get_published(name)
        assert records is not None
        return records.fraction(row, column)

    assert shown("table1", "note-rcnn", "label60-box20") == 0.658
    assert shown("table1", "br", "label40-box0") is None
    assert shown("table1", "mend", "label40-box0") is None
    assert shown("coco", "lr", "label40-box40-ap") == 0.172
    assert shown("ablation-labels", "pseudo", "label60-box0") == 0.714
    assert shown("gaussian", "br", "label0-gaussian30") == 0.71
    assert shown("refined-labels", "mend-paper: N*", "label40-box40") == pytest.approx(0.0845)
    assert get_published("no-harm") is None


def test_the_odd_tables_of_the_paper_are_alike_number_for_number() -> None:
    tables = all_published()
    s1, s3 = tables["sensitivity-n"], tables["sensitivity-t-cm"]
    assert list(s1.rows.values()) == list(s3.rows.values())
    s2, s4 = list(tables["sensitivity-alpha"].rows.values()), tables["sensitivity-t-refine"]
    assert [*s2[:4], s2[5]] == list(s4.rows.values())  # without the row of alpha 0.4
    base, other = tables["table1"].rows["baseline"], s1.rows["baseline"]
    assert [round(float(b) - float(a), 6) for a, b in zip(base, other, strict=False)] == [1.0] * 3


def test_published_judgments_add_up_to_all() -> None:
    rows = all_published()["refined-labels"].rows
    for one, other in (("TP", "FN"), ("TN", "FP")):
        sides = zip(rows[f"mend-paper: {one}"], rows[f"mend-paper: {other}"], strict=True)
        assert [round(float(a) + float(b), 6) for a, b in sides] == [100.0] * 9


def test_what_a_method_does_anyway_is_no_variant() -> None:
    alpha = LAYOUTS["sensitivity-alpha"]
    names = {
        (row.name, column.name): dict(cell_spec(row, column).variant)
        for row, column in product(alpha.rows, alpha.columns)
    }
    assert names["mend-paper, alpha 0.2", "label0-box20"] == {}
    assert names["mend-paper, alpha 0.2", "label0-box40"] == {"published.alpha": 0.2}
    assert names["mend-paper, alpha 0.4", "label0-box40"] == {}
    rate = LAYOUTS["sensitivity-rate"]
    names = {
        (row.name, column.name): dict(cell_spec(row, column).variant)
        for row, column in product(rate.rows, rate.columns)
    }
    assert names["mend-paper, given 0.4", "label40-box0"] == {}
    assert names["mend, given 0.4", "label40-box0"] == {"label_noise": 0.4}
    assert names["mend-paper, given 0.4", "label60-box0"] == {"label_noise": 0.4}


def test_the_two_stages_have_a_control_of_equal_compute() -> None:
    listed = {one.row.name: one for one in cell_specs(LAYOUTS["two-stage"])}
    control = listed["baseline, twice the epochs"]
    assert (control.method, dict(control.variant)) == ("baseline", {"epochs": TWICE_EPOCHS})
    assert listed["two-stage"].method == "two-stage"
    spec = {one.row.name: one for one in cell_specs(LAYOUTS["auto"])}["mend, rates given"]
    assert dict(spec.variant) == {"label_noise": TRUE_RATE, "box_noise": TRUE_RATE}
    assert "mend" not in GIVEN_TRUE_RATES


def test_table1_has_the_columns_of_the_paper_in_its_order() -> None:
    names = [column.name for column in LAYOUTS["table1"].columns]
    assert len(names) == 11
    records = get_published("table1")
    assert records is not None
    assert names == records.columns


def test_an_unknown_table_lists_those_that_exist() -> None:
    with pytest.raises(UsageError, match=r"no table 'table9'; there are table1, coco, core"):
        get_layout("table9")
