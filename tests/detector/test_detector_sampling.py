"""Sampling: the keys decide which, torchvision's rule decides how many."""

import pytest
import torch
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler

from boxmend.detector.sampling import sample
from tests.detector.detector_scenes import uniform_keys


def masks(*rows: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Read p as positive, n as negative, anything else as neither."""
    positive = torch.tensor([[letter == "p" for letter in row] for row in rows])
    negative = torch.tensor([[letter == "n" for letter in row] for row in rows])
    return positive, negative


def test_the_highest_keys_of_either_kind_are_drawn() -> None:
    keys = torch.tensor([[0.1, 0.9, 0.5, 0.2, 0.99, 0.3, 0.8, 0.0]])
    #                      p    p    p    n   -    n    n    n
    drawn = sample(*masks("pppn-nnn"), keys, number=4, positive_share=0.5)
    assert sorted(drawn.rows[0].tolist()) == [1, 2, 5, 6]  # positives 1 and 2, negatives 6 and 5
    assert drawn.is_sampled.tolist() == [[True] * 4]
    by_row = dict(zip(drawn.rows[0].tolist(), drawn.is_positive[0].tolist(), strict=True))
    assert by_row == {1: True, 2: True, 5: False, 6: False}


def test_missing_positives_are_made_up_for_by_negatives_and_not_the_other_way() -> None:
    positive, negative = masks("pnnnnnnn", "pppppppn", "--------")
    drawn = sample(positive, negative, uniform_keys(3, 8), number=4, positive_share=0.5)
    assert drawn.is_positive.sum(1).tolist() == [1, 2, 0]
    assert drawn.is_sampled.sum(1).tolist() == [4, 3, 0]


def test_fewer_rows_than_requested_are_padded() -> None:
    drawn = sample(*masks("pn"), torch.tensor([[0.0, 0.0]]), number=5, positive_share=0.5)
    assert drawn.rows.shape == drawn.is_sampled.shape == drawn.is_positive.shape == (1, 5)
    assert drawn.is_sampled.tolist() == [[True, True, False, False, False]]
    assert drawn.is_positive.tolist() == [[True, False, False, False, False]]
    assert drawn.rows[0, :2].tolist() == [0, 1]


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("positives", [0, 3, 20, 64])
@pytest.mark.parametrize("negatives", [0, 5, 64])
def test_counts_equal_torchvisions(share: float, positives: int, negatives: int) -> None:
    labels = torch.tensor([1] * positives + [0] * negatives + [-1] * 7)
    theirs = BalancedPositiveNegativeSampler(33, share)([labels])
    keys = uniform_keys(1, len(labels))
    drawn = sample(labels[None] == 1, labels[None] == 0, keys, number=33, positive_share=share)
    assert drawn.is_positive.sum() == theirs[0][0].sum()
    assert (drawn.is_sampled & ~drawn.is_positive).sum() == theirs[1][0].sum()
    rows = drawn.rows[drawn.is_sampled]
    assert len(set(rows.tolist())) == len(rows)
    assert (labels[drawn.rows[drawn.is_positive]] == 1).all()
    assert (labels[drawn.rows[drawn.is_sampled & ~drawn.is_positive]] == 0).all()


def test_every_row_has_the_same_chance() -> None:
    positive, negative = masks("p" * 10 + "n" * 20)
    times = torch.zeros(30)
    keys = uniform_keys(2000, 30)
    drawn = sample(
        positive.expand(2000, 30), negative.expand(2000, 30), keys, number=8, positive_share=0.5
    )
    times.scatter_add_(0, drawn.rows.flatten(), torch.ones(2000 * 8))
    # 4 of 10 positives: 800 times each, 4 of 20 negatives: 400 times each; four deviations
    assert (times[:10] - 800).abs().max() < 4 * (2000 * 0.4 * 0.6) ** 0.5
    assert (times[10:] - 400).abs().max() < 4 * (2000 * 0.2 * 0.8) ** 0.5
