"""Mend annotations inside any training: the detections of the model are all that is needed.

`Mender` collects the detections of a model on its training images, epoch after epoch. From them it
estimates the label noise and the box noise, and returns mended annotations for the next epoch. It
writes a run with a ledger, like `boxmend.train`. Nothing here imports PyTorch.
"""

from boxmend.repair.mender.annotations import IgnoreRegions, MendedAnnotations
from boxmend.repair.mender.mending import Mender, MenderUpdate
from boxmend.repair.mender.settings import MenderSettings

__all__ = ["IgnoreRegions", "MendedAnnotations", "Mender", "MenderSettings", "MenderUpdate"]
