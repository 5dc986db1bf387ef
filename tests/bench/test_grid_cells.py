"""Cells: their names, which of them a table has, and what each is trained with."""

from dataclasses import asdict
from pathlib import Path

import pytest

from boxmend.bench.grids.cells import Cell, choose_cells, list_table_cells, variant_word
from boxmend.bench.grids.layouts import LAYOUTS, get_layout
from boxmend.bench.grids.planning import GridRequest, make_plan
from boxmend.bench.grids.scales import SCALES, cell_settings, find_sources, fit_layout
from boxmend.bench.grids.table_spec import (
    AVERAGED_WEIGHTS,
    COMMON_RECIPE,
    PUBLISHED_RECIPE,
    TRUE_RATE,
    TWICE_EPOCHS,
    Variant,
)
from boxmend.data.noise import NoiseSettings, make_preset
from boxmend.errors import UsageError
from boxmend.methods.table import TrainingProgress
from boxmend.runs.settings.training import METHOD_SECTIONS


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (Cell("symmetric:0.4", "uniform:0.4", "mend", (), 0), "label40-box40-mend-0"),
        (Cell(None, None, "baseline", (), 2), "label0-box0-baseline-2"),
        (Cell("pair:0.4", None, "lr", (), 0), "pair40-box0-lr-0"),
        (Cell(None, "gaussian:0.2", "br", (), 1), "label0-gaussian20-br-1"),
        (Cell(None, "jitter:0.4", "oa-mil", (), 0), "label0-oamil40-oa-mil-0"),
        (
            Cell("pair:0.4", None, "mend", (), 1, presence="missing:0.2"),
            "pair40-box0-missing20-mend-1",
        ),
        (Cell(None, None, "mend", (), 0, presence="una:0.2"), "label0-box0-una20-mend-0"),
        (
            Cell(None, None, "mend", (("mend.box_noise_shape", "auto"),), 0),
            "label0-box0-mend~shape-auto-0",
        ),
        (
            Cell("symmetric:0.4", None, "mend-paper", (("published.queue_length", 64),), 0),
            "label40-box0-mend-paper~N64-0",
        ),
        (
            Cell(None, None, "mend", (("box_noise", TRUE_RATE), ("label_noise", TRUE_RATE)), 0),
            "label0-box0-mend~known-0",
        ),
        (
            Cell(None, None, "baseline", (("epochs", TWICE_EPOCHS),), 0),
            "label0-box0-baseline~x2-0",
        ),
        (Cell(None, None, "mend", (("label_noise", 0.2),), 0), "label0-box0-mend~label20-0"),
        (
            Cell(None, None, "mend", (("mend.raw_box_share", 0.4),), 0),
            "label0-box0-mend~rawboxshare0.4-0",
        ),
        (
            Cell(None, None, "ca-bbc", (("optimisation.average_decay", 0.998),), 0),
            "label0-box0-ca-bbc~average-0",
        ),
        (
            Cell(None, None, "ca-bbc", (("optimisation.average_decay", 0.9),), 0),
            "label0-box0-ca-bbc~averagedecay0.9-0",
        ),
        (
            Cell(None, None, "baseline", tuple(PUBLISHED_RECIPE.items()), 0),
            "label0-box0-baseline~published-0",
        ),
        (
            Cell(
                None,
                None,
                "mend-paper",
                (*COMMON_RECIPE.items(), *AVERAGED_WEIGHTS.items(), ("published.alpha", 0.3)),
            ),
            "label0-box0-mend-paper~common+average+alpha0.3-0",
        ),
    ],
)
def test_a_cell_is_named_label_noise_first(cell: Cell, name: str) -> None:
    assert cell.name == name


def test_noise_is_shared_by_methods_and_variants_and_clean_data_by_seeds() -> None:
    noisy = Cell("pair:0.3", "uniform:0.2", "mend", (("mend.raw_box_share", 0.4),), 2)
    assert noisy.noise_folder == "pair30-box20-2"
    assert (noisy.noise.labels, noisy.noise.boxes, noisy.noise.seed) == (
        "pair:0.3",
        "uniform:0.2",
        2,
    )
    fewer = Cell(None, None, "mend", (), 2, "missing:0.3")
    assert fewer.noise_folder == "label0-box0-missing30-2"
    assert fewer.noise == NoiseSettings(missing=0.3, seed=2)
    assert Cell(None, None, "br", (), 2, "spurious:0.3").noise == NoiseSettings(
        spurious=0.3, seed=2
    )
    assert Cell(None, None, "br", (), 2).noise_folder == "label0-box0"
    assert Cell(None, None, "br", (), 2).noise == Cell(None, None, "mend", (), 1).noise


@pytest.mark.parametrize("name", LAYOUTS)
def test_no_two_cells_of_a_table_have_one_name(name: str) -> None:
    cells = list_table_cells(get_layout(name), (0, 1))
    assert len({cell.name for cell in cells}) == len(cells) > 1
    assert {cell.seed for cell in cells} == {0, 1}


def test_table_1_has_the_reference_once_and_all_else_in_every_column() -> None:
    cells = list_table_cells(get_layout("table1"), (0,))
    assert len(cells) == 1 + 11 * 8  # 8 methods under 11 noises, and clean data
    assert cells[0].name == "label0-box0-baseline-0"


def test_a_table_whose_cell_needs_another_has_that_before_it() -> None:
    names = [cell.name for cell in list_table_cells(get_layout("two-stage"), (0,))]
    assert names.index("label40-box40-mend-0") < names.index("label40-box40-two-stage-0")
    kept = choose_cells(list_table_cells(get_layout("two-stage"), (0,)), methods=("two-stage",))
    assert [cell.method for cell in kept] == ["mend", "two-stage"]


def test_cells_are_chosen_by_patterns_and_methods() -> None:
    cells = list_table_cells(get_layout("table1"), (0, 1))
    kept = choose_cells(cells, only=("label40-box40-*", "label0-*-1"), methods=("mend", "br"))
    assert {cell.name for cell in kept} == {
        *(f"label40-box40-{method}-{seed}" for method in ("mend", "br") for seed in (0, 1)),
        *(f"label0-box{box}-{method}-1" for method in ("mend", "br") for box in (20, 40)),
    }


def test_a_message_about_a_missing_name_lists_the_known_ones() -> None:
    cells = list_table_cells(get_layout("table1"), (0,))
    with pytest.raises(UsageError, match=r"no method 'mand' here; there are .*, mend$"):
        choose_cells(cells, methods=("mend", "mand"))
    with pytest.raises(
        UsageError, match=r"--only label4: no cell has such a name; there are label0-b"
    ):
        choose_cells(cells, only=("label4",))
    with pytest.raises(UsageError, match="have no cell in common"):
        choose_cells(cells, only=("*-br-0",), methods=("lr",))
    with pytest.raises(UsageError, match=r"no table 'tabel1'; there are table1, "):
        make_plan(GridRequest(names=("tabel1",), scale="smoke"))
    with pytest.raises(UsageError, match="no scale 'big'; there are paper, voc320, smoke"):
        make_plan(GridRequest(names=("table1",), scale="big"))


def test_only_published_methods_get_the_true_rates() -> None:
    def given_rates(
        method: str, variant: tuple[tuple[str, str], ...] = ()
    ) -> tuple[object, object]:
        cell = Cell("symmetric:0.4", "uniform:0.2", method, variant, 3)
        settings = cell_settings(cell, SCALES["voc320"], None, {})
        assert settings.seed == 3
        return settings.label_noise, settings.box_noise

    assert given_rates("mend-paper") == given_rates("co-teaching") == (0.4, 0.2)
    assert given_rates("mend") == given_rates("baseline") == ("auto", "auto")
    assert given_rates("mend", (("label_noise", TRUE_RATE), ("box_noise", TRUE_RATE))) == (0.4, 0.2)


def test_the_scale_paper_leaves_mend_what_it_is_on_the_same_footing() -> None:
    ours, theirs = (
        cell_settings(Cell(None, None, method), SCALES["paper"], None, {})
        for method in ("mend", "baseline")
    )
    assert (ours.method, ours.preset) == ("mend", "default")
    assert (theirs.method, theirs.preset) == ("baseline", "paper")
    for one in (ours, theirs):
        assert (one.image_size, one.epochs, one.batch_size) == ("600/1000", 12, 16)
        assert (one.proposals, one.pre_nms, one.rois) == (1000, 2000, 512)


def shared_settings(method: str, recipe: Variant | None = None) -> dict[str, object]:
    """The settings of a cell that all methods have and that do not name the method."""
    cell = Cell("symmetric:0.4", None, method, tuple((recipe or {}).items()))
    settings = asdict(cell_settings(cell, SCALES["voc320"], None, {}))
    sections = (*METHOD_SECTIONS.values(), "method", "preset", "label_noise", "box_noise")
    return {name: value for name, value in settings.items() if name not in sections}


def test_a_recipe_makes_the_settings_of_two_methods_equal() -> None:
    baseline, published = shared_settings("baseline"), shared_settings("mend-paper")
    assert baseline == shared_settings("ca-bbc") == shared_settings("oa-mil") != published
    assert shared_settings("baseline", PUBLISHED_RECIPE) == published
    assert shared_settings("mend-paper", COMMON_RECIPE) == baseline
    averaged = shared_settings("mend")
    for method in ("baseline", "ca-bbc", "oa-mil"):
        assert shared_settings(method, AVERAGED_WEIGHTS) == averaged != baseline
    assert shared_settings("mend-paper", {**COMMON_RECIPE, **AVERAGED_WEIGHTS}) == averaged


def test_equal_footing_shares_its_plain_cells_and_limits_expensive_ones() -> None:
    cells = list_table_cells(get_layout("equal-footing"), (0,))
    plain = {cell.name for cell in cells if not cell.variant}
    others = [*list_table_cells(get_layout("core"), (0,))]
    others += list_table_cells(get_layout("rivals"), (0,))
    assert plain <= {cell.name for cell in others}
    assert {cell.name for cell in cells if cell.variant} == {
        *(f"label0-box0-baseline~{word}-0" for word in ("average", "published")),
        *(
            f"{noise}-baseline~{word}-0"
            for noise in ("label40-box40", "label20-box20", "label40-box0", "label0-box40")
            for word in ("average", "published")
        ),
        *(f"label40-box40-mend-paper~{word}-0" for word in ("common", "common+average")),
        *(f"label40-box40-{method}~average-0" for method in ("ca-bbc", "oa-mil")),
    }


def test_the_readings_are_single_settings_and_combinations_of_the_published_method() -> None:
    cells = list_table_cells(get_layout("readings"), (0,))
    single = {"discarded-ignore", "classes-foreground", "warmup0.0833", "rois512", "batch2+lr0.01"}
    both = "discarded-ignore+classes-foreground"
    only_with_boxes = {
        "at-proposal",
        "at-annotation",
        "discarded-ignore+at-proposal+classes-foreground",
    }
    for noise, words in (
        ("label40-box40", {*single, both, *only_with_boxes}),
        ("label40-box0", {*single, both}),
    ):
        names = {cell.name for cell in cells if cell.noise_name == noise}
        assert names == {
            *(f"{noise}-mend-paper~{word}-0" for word in words),
            *(f"{noise}-{method}-0" for method in ("mend-paper", "baseline")),
            f"{noise}-baseline~batch2+lr0.01-0",
        }
    # the other table shows more figures of the same trainings
    assert set(list_table_cells(get_layout("readings-mending"), (0,))) < set(cells)
    readings = {cell for cell in cells if cell.method == "mend-paper"}
    assert set(list_table_cells(get_layout("readings-mending"), (0,))) == readings


def test_a_warm_up_of_one_pass_is_a_twelfth_of_the_steps() -> None:
    (cell,) = choose_cells(
        list_table_cells(get_layout("readings"), (0,)), only=("label40-box0-*warmup*",)
    )
    settings = cell_settings(cell, SCALES["voc320"], None, {})
    steps_per_epoch = 313  # 5,011 images in batches of 16
    progress = TrainingProgress.at(0, 0, 12 * steps_per_epoch, settings.warm_up, settings.epochs)
    assert progress.warm_up_steps_left == steps_per_epoch


def test_twice_the_epochs_are_twice_those_that_are_set() -> None:
    cell = Cell(None, None, "baseline", (("epochs", TWICE_EPOCHS),))
    assert cell_settings(cell, SCALES["voc320"], None, {}).epochs == 24
    assert cell_settings(cell, SCALES["voc320"], None, {"epochs": 5}).epochs == 10


def test_a_cell_of_two_stages_trains_the_baseline() -> None:
    cell = Cell("symmetric:0.4", "uniform:0.4", "two-stage")
    assert cell_settings(cell, SCALES["voc320"], None, {}).method == "baseline"


def test_settings_may_be_texts() -> None:
    texts = {
        "image_size": "96",
        "epochs": "6",
        "optimisation.lr": "0.5",
        "cuda_graph": "false",
        "mend.raw_box_share": "null",
        "label_noise": "0.25",
        "box_noise": "auto",
        "weights": "none",
    }
    result = cell_settings(Cell(None, None, "mend"), SCALES["voc320"], None, texts)
    assert (result.image_size, result.epochs, result.optimisation.lr) == ("96", 6, 0.5)
    assert (result.cuda_graph, result.mend.raw_box_share, result.weights) == (False, None, "none")
    assert (result.label_noise, result.box_noise) == (0.25, "auto")


def test_wrong_settings_are_refused_by_name() -> None:
    cell = Cell(None, None, "mend")
    with pytest.raises(UsageError, match=r"--set: there is no setting epoch; did you mean epochs"):
        cell_settings(cell, SCALES["voc320"], None, {"epoch": 3})
    with pytest.raises(UsageError, match=r"--set: mend.raw_box_share is 7"):
        cell_settings(cell, SCALES["voc320"], None, {"mend.raw_box_share": 7})
    with pytest.raises(UsageError, match=r"--set epochs.many: no such setting"):
        cell_settings(cell, SCALES["voc320"], None, {"epochs.many": 7})


@pytest.mark.parametrize("name", LAYOUTS)
def test_smoke_runs_clean_data_and_one_noise_of_every_table(name: str) -> None:
    cells = list_table_cells(fit_layout(SCALES["smoke"], get_layout(name)), (0,))
    noises = {cell.noise_name for cell in cells} - {"label0-box0"}
    assert len(noises) == (0 if name == "no-harm" else 1)


def test_data_are_needed_and_options_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="--scale voc320 needs clean data to train on: give --data"
    ):
        find_sources(SCALES["voc320"], tmp_path, (), ("x",))
    with pytest.raises(UsageError, match="needs clean data to score on: give --val"):
        find_sources(SCALES["paper"], tmp_path, ("x",), ())
    with pytest.raises(
        UsageError, match="--scale smoke draws its data: leave out --data and --val"
    ):
        find_sources(SCALES["smoke"], tmp_path, ("x",), ())


def test_an_empty_variant_has_no_name() -> None:
    assert variant_word({}) == ""


def test_the_noise_of_una_has_all_kinds() -> None:
    cell = Cell(None, None, "mend", (), 3, presence="una:0.2")
    assert cell.noise == make_preset("una:0.2", 3)
    assert not cell.is_clean
    assert cell.noise_folder == "label0-box0-una20-3"
