"""NOTE-RCNN: its seeds, stages and losses by hand-computed numbers, and its steps."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings as bounded
from hypothesis import strategies as st
from torch import Tensor

from boxmend.errors import UsageError
from boxmend.methods.peers.note_rcnn import (
    NoteRcnn,
    distillation_loss,
    is_near,
    lowest_of_each_label,
    num_plain_epochs,
    seed_share,
)
from boxmend.methods.table import MethodInputs, Rates, TrainingProgress, build
from boxmend.runs.settings import MendSettings, NoteRcnnSettings
from tests.methods.method_batches import one_image, random_batch
from tests.methods.peers.note_rcnn_scenes import ROWS, method

INF = math.inf


@pytest.mark.parametrize(
    ("share", "num_epochs", "passes"),
    [
        (1 / 3, 12, 4),
        (1 / 3, 14, 5),  # 4.67
        (1 / 3, 4, 1),  # 1.33
        (1 / 3, 2, 1),  # 0.67
        (0.0, 5, 1),  # without a loss there is nothing to choose by
        (1.0, 3, 3),
        (1 / 3, 1, 1),
        (1 / 3, 0, 0),
    ],
)
def test_a_share_of_the_epochs_and_at_least_one_is_plain(
    share: float, num_epochs: int, passes: int
) -> None:
    assert num_plain_epochs(share, num_epochs) == passes


@pytest.mark.parametrize(
    ("setting", "rate", "share"),
    [(None, None, 0.5), (None, 0.0, 0.5), (None, 0.4, 0.5), (None, 0.6, 0.4), (0.9, 0.6, 0.9)],
)
def test_half_of_the_annotations_are_seeds_or_fewer_where_fewer_are_right(
    setting: float | None, rate: float | None, share: float
) -> None:
    assert seed_share(NoteRcnnSettings(seed_share=setting), Rates(rate)) == pytest.approx(share)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_outside_of_0_to_1_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="label_noise"):
        NoteRcnn(1, 1, rates=Rates(label=rate))


def test_seeds_are_the_lowest_losses_of_each_label_rounded_up() -> None:
    losses = torch.tensor([0.9, 0.1, 0.5, 4.0, 3.0, 2.0, INF, 0.3, math.nan])
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    lowest = lowest_of_each_label(losses, labels, 0.5, num_labels=4)
    # label 0: ceil(1.5) = 2 of 0.1 0.5 0.9; label 1: 2 of 2 3 4, one was never seen; label 2: its
    # only one; label 3 has none
    assert lowest.nonzero()[:, 0].tolist() == [1, 2, 4, 5, 7]


def test_of_equal_losses_the_first_annotations_are_seeds() -> None:
    losses, labels = torch.ones(40), torch.zeros(40, dtype=torch.int64)
    lowest = lowest_of_each_label(losses, labels, 0.25, num_labels=1)
    assert lowest.tolist() == [True] * 10 + [False] * 30


@pytest.mark.parametrize(("share", "number"), [(0.0, 0), (0.4, 2), (0.41, 3), (1.0, 5)])
def test_a_share_of_five_gives_the_exact_number(share: float, number: int) -> None:
    losses, labels = torch.arange(5.0), torch.zeros(5, dtype=torch.int64)
    assert lowest_of_each_label(losses, labels, share, 1).sum() == number


@drawn(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0, INF]), st.integers(0, 3)), max_size=30
    ),
    st.floats(0, 1),
)
@bounded(max_examples=60, deadline=None)
def test_no_seed_has_a_higher_loss_than_another_annotation_of_its_label(
    rows: list[tuple[float, int]], share: float
) -> None:
    losses = torch.tensor([loss for loss, _ in rows])
    labels = torch.tensor([label for _, label in rows], dtype=torch.int64)
    lowest = lowest_of_each_label(losses, labels, share, num_labels=4)
    assert not lowest[losses.isinf()].any()
    for label in range(4):
        is_here = (labels == label) & losses.isfinite()
        seeds, others = losses[lowest & is_here], losses[~lowest & is_here]
        number = share * int(is_here.sum())
        assert number - 1e-6 <= len(seeds) < number + 1
        if len(seeds) and len(others):
            assert seeds.max() <= others.min()


def test_the_distillation_loss_is_the_divergence_of_softened_distributions() -> None:
    with_limits = 2 * torch.tensor([[0.8, 0.2], [0.5, 0.5], [math.nan, math.nan]]).log()
    logits = torch.tensor([[0.0, 0.0], [3.0, 3.0], [math.nan, 1.0]], requires_grad=True)
    is_sampled = torch.tensor([True, True, False])
    loss = distillation_loss(logits, with_limits, is_sampled, 2.0, torch.tensor(2))
    # p = (0.8, 0.2), q = (0.5, 0.5): 0.8 ln 1.6 + 0.2 ln 0.4 = 0.376003 - 0.183258 = 0.192745,
    # times 2^2 and halved; the second row agrees, the third is padding
    assert loss.item() == pytest.approx(0.385490, abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    # T (q - p) / 2 = 2 (0.5 - 0.8, 0.5 - 0.2) / 2
    expected = torch.tensor([[-0.3, 0.3], [0.0, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(logits.grad, expected)


def test_near_boxes_overlap_an_annotation_by_the_minimum() -> None:
    annotations = one_image([[0.0, 0, 10, 10], [40, 40, 60, 60], [70, 70, 80, 80]], [0, 1, 2])
    annotations = annotations._replace(
        is_box=torch.tensor([[True, False, False]]), is_ignored=torch.tensor([[False, True, False]])
    )
    rois = torch.tensor(
        [
            [
                [0.0, 0, 10, 2.5],  # 25 of 100: reaches 0.25
                [0.0, 0, 10, 2.4],
                [40.0, 40, 60, 60],  # an ignored object is an object
                [70.0, 70, 80, 80],  # padding
                [0.0, 0, 0, 0],
            ]
        ]
    )
    assert is_near(rois, annotations, 0.25).tolist() == [[True, False, True, False, False]]


def progress(epoch: int, step: int, num_epochs: int = 6) -> TrainingProgress:
    return TrainingProgress(epoch, step, 10 * num_epochs, 0, num_epochs)


def test_the_learning_rate_follows_the_steps_of_each_stage() -> None:
    made = method()  # 2 of 6 epochs of 10 steps are plain
    assert made.clock(progress(0, 0)) == (0, 20)
    assert made.clock(progress(1, 19)) == (19, 20)
    assert made.clock(progress(2, 20)) == (0, 40)
    assert made.clock(progress(5, 59)) == (39, 40)


def test_one_epoch_or_only_plain_epochs_have_one_schedule() -> None:
    assert method().clock(progress(0, 9, num_epochs=1)) == (9, 10)
    plain = method(NoteRcnnSettings(plain_share=1.0))
    assert plain.clock(progress(5, 59)) == (59, 60)


def test_the_stages_are_two_phases() -> None:
    made = method()
    phases = [made.phase(progress(epoch, 10 * epoch)) for epoch in range(6)]
    assert phases == [True, True, False, False, False, False]


def fill_memory(made: NoteRcnn) -> None:
    """Store losses of five annotations of two labels in the last plain epoch of two."""
    state = made.state_dict()
    state["losses"][:5] = torch.tensor([0.2, 0.1, 1.0, 3.0, 2.0])
    state["labels"][:5] = torch.tensor([0, 0, 0, 1, 1])
    state["num_epochs"] = 6
    made.load_state_dict(state)


def test_seeds_are_chosen_when_the_plain_stage_ends_and_only_then() -> None:
    made = method()
    fill_memory(made)
    assert made.end_epoch(0, is_warm_up=False) == {}
    assert not made.state_dict()["is_seed"].any()
    assert made.end_epoch(1, is_warm_up=False) == {"seeds": 3 / 5}  # ceil(1.5) + 1 of 5
    chosen = made.state_dict()["is_seed"]
    assert chosen.nonzero()[:, 0].tolist() == [0, 1, 4]
    assert made.end_epoch(2, is_warm_up=False) == {}
    assert torch.equal(made.state_dict()["is_seed"], chosen)


def test_an_epoch_without_visits_has_no_seeds() -> None:
    made = method()
    made.load_state_dict(made.state_dict() | {"num_epochs": 3})
    assert made.end_epoch(0, is_warm_up=False) == {"seeds": 0.0}


def test_a_method_resumes_from_its_state_in_the_same_memory() -> None:
    first, second = method(), method()
    fill_memory(first)
    state = first.state_dict()
    second.load_state_dict(state)
    assert second.end_epoch(1, is_warm_up=False) == first.end_epoch(1, is_warm_up=False) != {}
    for key, value in first.state_dict().items():
        assert torch.as_tensor(second.state_dict()[key]).equal(torch.as_tensor(value))
    assert not state["is_seed"].any()  # a snapshot


def test_a_state_of_another_dataset_is_refused() -> None:
    with pytest.raises(UsageError, match=f"are of {ROWS} annotations, there are 7"):
        NoteRcnn(7, 3).load_state_dict(method().state_dict())


def test_it_is_built_by_its_name_with_its_own_settings() -> None:
    made = build(
        "note-rcnn", MethodInputs(4, 2, Rates(0.7, 0.1), NoteRcnnSettings(temperature=3.0))
    )
    assert isinstance(made, NoteRcnn)
    assert made.settings.temperature == 3
    assert made.share == pytest.approx(0.3)
    with pytest.raises(UsageError, match="note-rcnn takes NoteRcnnSettings, not MendSettings"):
        build("note-rcnn", MethodInputs(4, 2, settings=MendSettings()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"plain_share": -0.1},
        {"plain_share": 1.1},
        {"seed_share": 2.0},
        {"temperature": 0.0},
        {"temperature": INF},
        {"distillation_weight": -1.0},
        {"mask_min_iou": math.nan},
        {"mask_max_background": 1.5},
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"note_rcnn.{next(iter(wrong))}"):
        NoteRcnnSettings(**wrong)


@drawn(st.integers(0, 50))
@bounded(max_examples=15, deadline=None)
def test_no_box_is_near_in_an_image_without_annotations(seed: int) -> None:
    annotations, proposals = random_batch(seed)
    result: Tensor = is_near(proposals.boxes.nan_to_num(), annotations, 0.1)
    assert result[0].any()  # proposals lie around its annotations
    assert not result[2].any()
