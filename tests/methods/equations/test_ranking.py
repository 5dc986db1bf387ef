"""The best few of masked rows: order, ties and padding."""

import math

import pytest
import torch

from boxmend.methods.equations.ranking import best

ALL = torch.ones(1, 4).bool()


def test_the_best_come_first_and_of_equal_ones_the_earlier() -> None:
    places, is_found = best(torch.tensor([[0.2, 0.9, 0.5, 0.9]]), ALL, 3)
    assert places.tolist() == [[1, 3, 2]]
    assert is_found.tolist() == [[True, True, True]]


@pytest.mark.parametrize("lure", [math.nan, math.inf, 9.0, -math.inf])
def test_padding_is_never_ranked(lure: float) -> None:
    scores = torch.tensor([[lure, 0.1, lure, 0.3]])
    places, is_found = best(scores, torch.tensor([[False, True, False, True]]), 3)
    assert places.tolist() == [[3, 1, 0]]
    assert is_found.tolist() == [[True, True, False]]


def test_a_row_shorter_than_the_count_is_filled_up() -> None:
    places, is_found = best(torch.tensor([[0.1, 0.7]]), torch.ones(1, 2).bool(), 4)
    assert places.tolist() == [[1, 0, 0, 0]]
    assert is_found.tolist() == [[True, True, False, False]]


def test_an_empty_row_gives_an_empty_result() -> None:
    places, is_found = best(torch.zeros(2, 0), torch.zeros(2, 0).bool(), 2)
    assert places.tolist() == [[0, 0], [0, 0]]
    assert not is_found.any()


def test_an_eligible_score_of_minus_infinity_still_counts() -> None:
    scores = torch.tensor([[-math.inf, -math.inf, 0.5]])
    places, is_found = best(scores, torch.tensor([[False, True, True]]), 3)
    assert places.tolist() == [[2, 1, 0]]
    assert is_found.tolist() == [[True, True, False]]
