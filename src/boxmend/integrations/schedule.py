"""The epochs after which a training is mended."""

from dataclasses import dataclass

from boxmend.errors import UsageError


@dataclass(frozen=True)
class UpdateSchedule:
    """When a training is mended."""

    warm_up: float = 0.2  # share of the epochs before the first update
    every: int = 3  # epochs from one update to the next

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up < 1:
            raise UsageError(f"warm_up is {self.warm_up}; expected a share from 0 to below 1")
        if self.every < 1:
            raise UsageError(f"every is {self.every}; expected a number of epochs, at least 1")

    def is_due(self, epoch: int, num_epochs: int) -> bool:
        """Return whether to update after `epoch` of `num_epochs` epochs."""
        first = max(1, round(self.warm_up * num_epochs))
        return epoch >= first and (epoch - first) % self.every == 0
