"""What is filled in for whom, and that what is set stays."""

from dataclasses import replace

import pytest

from boxmend.detector import DETECTORS
from boxmend.methods.table import METHODS
from boxmend.runs.settings import Optimisation, PublishedSettings, TrainSettings, resolve_settings
from boxmend.runs.settings.presets import FIXED_COUNT_DETECTORS, PAPER_METHODS

LITERAL = ["br", "cinj", "cm", "lr", "mend-paper", "pseudo"]


def test_the_paper_is_read_literally() -> None:
    settings = resolve_settings(TrainSettings(method="mend", preset="paper", batch_size=8))
    assert settings.method == "mend-paper"
    assert (settings.difficult, settings.box_loss, settings.rpn_low_quality) == (
        *("background", "l1"),
        0.3,
    )
    assert (settings.proposals, settings.pre_nms, settings.rois) == (1000, 2000, 512)
    optimisation = settings.optimisation
    assert optimisation.lr == pytest.approx(0.01)
    assert (optimisation.schedule, optimisation.drop_at) == ("step", 0.75)
    assert (optimisation.max_norm, optimisation.average_decay) == (0, 0)
    assert settings.published == PublishedSettings()
    assert settings.published.discarded == "background"


@pytest.mark.parametrize("method", LITERAL)
def test_rows_of_the_tables_are_read_so_whatever_the_preset(method: str) -> None:
    paper = resolve_settings(TrainSettings(method="mend", preset="paper"))
    for preset in ("default", "paper"):
        settings = resolve_settings(TrainSettings(method=method, preset=preset))
        assert settings == replace(paper, method=method)


def test_mend_keeps_an_average_and_ignores_difficult_objects() -> None:
    settings = resolve_settings(TrainSettings())
    assert (settings.method, settings.preset) == ("mend", "default")
    assert (settings.difficult, settings.box_loss, settings.rpn_low_quality) == (
        *("ignore", "smooth_l1"),
        0,
    )
    assert (settings.proposals, settings.pre_nms, settings.rois) == (None, None, None)
    assert (settings.optimisation.max_norm, settings.optimisation.average_decay) == (35, 0.998)
    assert settings.optimisation.lr == pytest.approx(0.02)


def test_the_baseline_is_the_detector_without_an_average() -> None:
    settings = resolve_settings(TrainSettings(method="baseline"))
    mend = resolve_settings(TrainSettings())
    vanilla = replace(mend.optimisation, average_decay=0.0)
    assert settings == replace(mend, method="baseline", optimisation=vanilla)
    paper = resolve_settings(TrainSettings(method="baseline", preset="paper"))
    assert (paper.method, paper.difficult, paper.proposals) == ("baseline", "background", 1000)


def test_what_is_set_goes_before_the_preset() -> None:
    explicit = TrainSettings(
        method="mend-paper",
        proposals=300,
        pre_nms=700,
        rois=128,
        box_loss="smooth_l1",
        rpn_low_quality=0.0,
        difficult="ignore",
        optimisation=Optimisation(lr=0.5, schedule="cosine", max_norm=1.0, average_decay=0.9),
    )
    assert resolve_settings(explicit) == replace(explicit, preset="paper")


@pytest.mark.parametrize(
    ("proposals", "pre_nms"), [(300, 1000), (500, 1000), (501, None), (None, None)]
)
def test_few_proposals_are_chosen_from_fewer_anchors(
    proposals: int | None, pre_nms: int | None
) -> None:
    assert resolve_settings(TrainSettings(proposals=proposals)).pre_nms == pre_nms
    assert resolve_settings(TrainSettings(proposals=proposals, method="br")).pre_nms == 2000


def test_the_tiny_detector_keeps_its_own_numbers() -> None:
    settings = resolve_settings(TrainSettings(method="br", detector="tiny", proposals=100))
    assert (settings.proposals, settings.pre_nms, settings.rois) == (100, None, None)
    assert settings.box_loss == "l1"


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_resolved_settings_stay_as_they_are(method: str, preset: str) -> None:
    once = resolve_settings(TrainSettings(method=method, preset=preset, weights=None))  # type: ignore[arg-type]
    assert resolve_settings(once) == once
    assert once.weights == "none"


def test_names_in_the_settings_are_those_of_methods_and_detectors() -> None:
    peers = {"ca-bbc", "co-teaching", "disco", "note-rcnn", "oa-mil"}
    assert set(METHODS) - {"baseline", "mend", *peers} == PAPER_METHODS
    assert set(DETECTORS) >= FIXED_COUNT_DETECTORS
