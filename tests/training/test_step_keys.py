"""The random numbers of a step: by its seed alone, in new memory or always in the same."""

import torch

from boxmend.training.processes import Processes
from boxmend.training.replay import RandomNumbers

SHAPES = [torch.Size((2, 5)), torch.Size((2, 3))]


def draw_numbers(keys: RandomNumbers, seed: int) -> list[list[list[float]]]:
    keys.start(seed)
    return [keys.draw(shape).tolist() for shape in SHAPES]


def test_numbers_follow_from_the_seed_and_differ_within_a_step() -> None:
    keys = RandomNumbers(Processes(torch.device("cpu")))
    first = draw_numbers(keys, 7)
    assert draw_numbers(keys, 8) != first
    assert draw_numbers(keys, 7) == first
    assert first[0][0][:3] != first[1][0]
    assert all(0 <= one < 1 for table in first for row in table for one in row)


def test_fixed_numbers_are_the_same_ones_in_memory_that_stays() -> None:
    keys = RandomNumbers(Processes(torch.device("cpu")))
    wanted = [draw_numbers(keys, seed) for seed in (7, 8)]
    keys.fix()
    places = []
    for seed, numbers in zip((7, 8), wanted, strict=True):
        keys.start(seed)
        tensors = [keys.draw(shape) for shape in SHAPES]
        assert [tensor.tolist() for tensor in tensors] == numbers
        places.append([tensor.data_ptr() for tensor in tensors])
    assert places[0] == places[1]
    keys.release()
    assert draw_numbers(keys, 8) == wanted[1]
