"""Co-teaching in several processes: medians and queues are those of the whole batch."""

import torch
from torch import Tensor

from boxmend.methods.protocol import SingleProcess
from tests.methods.peers.test_co_teaching_method import batch, step, with_limits


class Another(SingleProcess):
    """Another process, which has the same annotations with losses three times as high."""

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        def theirs(tensor: Tensor) -> Tensor:
            return tensor if tensor.dtype == torch.bool else 3 * tensor

        return tuple(torch.cat([tensor, theirs(tensor)]) for tensor in tensors)


def test_losses_are_in_medians_of_the_whole_batch_and_all_are_pushed() -> None:
    torch.set_num_threads(1)
    alone, one_of_two = with_limits(), with_limits()
    one_of_two.exchange = Another()
    for method in (alone, one_of_two):
        method.losses(step(batch()))
    for mine, joined in zip(alone.queues, one_of_two.queues, strict=True):
        own = mine[mine.isfinite()]
        number = len(own)
        assert number > 3
        assert joined.isfinite().sum() == 2 * number
        here, there = joined[-2 * number : -number], joined[-number:]
        torch.testing.assert_close(there, 3 * here)
        assert (here < own).all()  # the higher losses of the others raise both medians
