"""Results that differ in more than what is compared never stand side by side unnoticed."""

from typing import Any

import msgspec
import pytest

from boxmend.bench.grids.comparability import (
    ADDED_SETTINGS,
    ResultDifference,
    filter_results,
    find_differences,
    refuse_differences,
)
from boxmend.bench.grids.results import Data, Result
from boxmend.errors import DataError, UsageError
from boxmend.runs.settings import TrainSettings
from tests.bench.grid_results import SETTINGS, result

BOTH = ("symmetric:0.4", "uniform:0.4")


def change_result(one: Result, **fields: Any) -> Result:
    return msgspec.structs.replace(one, **fields)


def with_settings(one: Result, **values: Any) -> Result:
    return change_result(one, settings=one.settings | values)


def places(*results: Result) -> list[str]:
    return [f"{difference.where}{difference.among}" for difference in find_differences(results)]


BASE = result("baseline", noise=BOTH)
MEND = result("mend", noise=BOTH)
PAPER = result("mend-paper", noise=BOTH)


def test_methods_noise_and_seeds_may_differ() -> None:
    assert (
        places(BASE, MEND, PAPER, result(), result(seed=1), result("mend", noise=BOTH, seed=1))
        == []
    )


@pytest.mark.parametrize(
    "name",
    ["detector", "weights", "image_size", "epochs", "batch_size", "precision", "proposals", "rois"],
)
def test_what_all_methods_share_may_not_differ(name: str) -> None:
    assert places(BASE, with_settings(MEND, **{name: "other"})) == [f"settings.{name}"]


@pytest.mark.parametrize("name", ["preset", "label_noise", "box_noise", "method", "seed"])
def test_what_a_table_is_about_may_differ(name: str) -> None:
    assert places(BASE, MEND, with_settings(result("mend", noise=BOTH, seed=1), **{name: 9})) == []


def test_settings_of_a_method_may_differ_from_those_of_others_but_not_from_its_own() -> None:
    literal = with_settings(PAPER, box_loss="l1", optimisation={"lr": 0.01})
    assert places(BASE, MEND, literal) == []
    elsewhere = with_settings(result("mend-paper", noise=("symmetric:0.2", None)), box_loss="l1")
    assert places(literal, elsewhere) == ["settings.optimisation.lr of mend-paper"]
    other = with_settings(result("mend", noise=BOTH, seed=1), mend={"raw_box_min_share": 0.3})
    assert places(MEND, other) == ["settings.mend.raw_box_min_share of mend"]


def test_settings_that_a_method_does_not_go_by_may_differ() -> None:
    odd = with_settings(result("baseline", seed=1), mend={"raw_box_min_share": 0}, published={})
    assert places(BASE, odd) == []
    odd = with_settings(result("mend", seed=1), published={"queue_length": 1}, log_every=1)
    assert places(MEND, odd) == []
    peer = with_settings(result("ca-bbc"), ca_bbc={"alpha": 1})
    assert places(peer, with_settings(result("ca-bbc", seed=1), ca_bbc={"alpha": 2})) == [
        "settings.ca_bbc.alpha of ca-bbc"
    ]


def test_a_setting_that_one_result_lacks_is_a_difference() -> None:
    lacking = change_result(result("mend", seed=1), settings=SETTINGS | {"mend": {}})
    (actual,) = find_differences([MEND, lacking])
    assert set(actual.cells) == {"0.4", "(not set)"}


def test_a_setting_that_is_not_set_is_as_before_there_was_one() -> None:
    newer = with_settings(
        result("mend", seed=1), mend=SETTINGS["mend"] | {"missing_min_score": None}
    )
    assert places(MEND, newer) == []
    newer = with_settings(newer, mend=SETTINGS["mend"] | {"missing_min_score": 0.3})
    assert places(MEND, newer) == ["settings.mend.missing_min_score of mend"]


def test_results_before_a_setting_was_added_have_its_default() -> None:
    older = result("mend-paper", noise=BOTH)
    published = {"judged_classes": "all", "judged_box": "matched"}
    newer = with_settings(
        result("mend-paper", noise=BOTH, seed=1), published=SETTINGS["published"] | published
    )
    assert places(older, newer) == []
    for name, value in (("judged_classes", "foreground"), ("judged_box", "annotation")):
        changed = with_settings(newer, published=SETTINGS["published"] | published | {name: value})
        assert places(older, changed) == [f"settings.published.{name} of mend-paper"]


def test_added_settings_have_the_defaults_of_today() -> None:
    for place, value in ADDED_SETTINGS.items():
        section, name = place.removeprefix("settings.").split(".")
        assert str(getattr(getattr(TrainSettings(), section), name)) == value


def test_what_a_variant_sets_may_differ() -> None:
    longer = with_settings(result("baseline", variant={"epochs": "twice"}, noise=BOTH), epochs=24)
    assert places(BASE, longer) == []
    assert places(BASE, change_result(longer, variant={})) == ["settings.epochs"]
    short = with_settings(
        result("mend-paper", noise=BOTH, variant={"published.queue_length": 64}),
        published={"queue_length": 64},
    )
    assert places(PAPER, short) == []


def test_data_may_not_differ() -> None:
    noisy = MEND.data.noisy_sha256
    assert places(BASE, change_result(MEND, data=Data("b" * 64, noisy, "c" * 64))) == [
        "data.train_sha256"
    ]
    assert places(BASE, change_result(MEND, data=Data("a" * 64, noisy, "d" * 64))) == [
        "data.val_sha256"
    ]


def test_the_noisy_data_of_one_noise_and_seed_are_the_same_in_all_methods() -> None:
    other = change_result(MEND, data=Data("a" * 64, "e" * 64, "c" * 64))
    noise_text = "labels symmetric:0.4, boxes uniform:0.4, seed 0"
    assert places(BASE, other) == [f"data.noisy_sha256 with {noise_text}"]
    assert places(BASE, change_result(other, seed=1)) == []
    assert (
        places(BASE, change_result(other, method="two-stage")) == []
    )  # trained on the mended ones


def test_missing_annotations_are_a_noise_of_their_own() -> None:
    fewer = result("mend", noise=(None, None, "missing:0.4"))
    assert places(result(), fewer) == []
    other = change_result(fewer, data=Data("a" * 64, "e" * 64, "c" * 64), method="br")
    noise_text = "labels None, boxes None, missing:0.4, seed 0"
    assert places(fewer, other) == [f"data.noisy_sha256 with {noise_text}"]


def test_clean_data_are_the_same_for_every_seed() -> None:
    other = change_result(result(seed=1), data=Data("a" * 64, "e" * 64, "c" * 64))
    assert places(result(), other) == ["data.noisy_sha256 with no noise"]


def test_versions_and_hardware_may_not_differ() -> None:
    newer = change_result(MEND, versions={"boxmend": "0.1.0", "torch": "2.16.0"})
    assert places(BASE, newer) == ["versions.torch"]
    assert places(BASE, change_result(MEND, versions={"boxmend": "0.1.0"})) == ["versions.torch"]
    assert places(BASE, change_result(MEND, hardware="another GPU")) == ["hardware"]


def test_failed_cells_differ_in_nothing_that_is_shown() -> None:
    assert places(BASE, change_result(MEND, hardware="another", error="failed", scores={})) == []


def test_the_refusal_names_setting_values_cells_and_remedy() -> None:
    odd = [with_settings(result("mend", noise=BOTH, seed=seed), epochs=24) for seed in range(5)]
    few = [with_settings(BASE, epochs=12)]
    with pytest.raises(DataError) as caught:
        refuse_differences(find_differences([*few, *odd]))
    assert str(caught.value).splitlines() == [
        "the results differ in more than method, noise and seed:",
        "  settings.epochs: 24 in symmetric0.4-uniform0.4-mend-0, symmetric0.4-uniform0.4-mend-1, "
        "symmetric0.4-uniform0.4-mend-2 and 2 more; 12 in symmetric0.4-uniform0.4-baseline-0",
        "select by --where, like --where 'settings.epochs=24', or use --mixed",
    ]
    refuse_differences([])


def test_results_are_chosen_by_what_they_have() -> None:
    newer = change_result(MEND, versions={"boxmend": "0.1.0", "torch": "2.16.0"})
    assert filter_results([BASE, newer], ["versions.torch=2.16.0"]) == [newer]
    assert filter_results([BASE, newer], ["settings.epochs=12", "method=baseline"]) == [BASE]
    assert filter_results([BASE, newer], []) == [BASE, newer]
    assert filter_results([], ["method=mend"]) == []


def test_what_a_variant_sets_is_not_chosen_by() -> None:
    longer = with_settings(result("baseline", variant={"epochs": "twice"}, noise=BOTH), epochs=24)
    assert filter_results([BASE, longer], ["settings.epochs=12"]) == [BASE, longer]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("versions.torch", "expected PLACE=VALUE"),
        ("versions.torch=1", "at versions.torch they have 2.15.0"),
        ("code=0123456789ab", "at code they have nothing"),
        ("versions.tensor=1", "there is no such place; there are versions.torch"),
        ("zzz=1", "there is no such place; there are method, hardware"),
    ],
)
def test_a_choice_that_no_result_meets_is_refused(condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        filter_results([BASE], [condition])


def test_hostile_texts_are_shown_on_one_line() -> None:
    odd = change_result(MEND, hardware="a\n\x1b[31mb" + "x" * 9999)
    (result,) = find_differences([BASE, odd])
    assert isinstance(result, ResultDifference)
    assert "\n" not in result.describe()
    assert "\x1b" not in result.describe()
    assert len(result.describe()) < 500
