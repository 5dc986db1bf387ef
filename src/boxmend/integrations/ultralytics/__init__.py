"""Mend annotations while an Ultralytics YOLO detector learns from them.

    from boxmend.integrations import ultralytics as mending

    model = YOLO("yolo11n.yaml")
    mending.attach(model, out="run")
    model.train(data="data.yaml", epochs=100)

Every few epochs, the averaged weights predict the training images without augmentation, a
`boxmend.Mender` judges the annotations by these detections, and the training continues with the
mended ones. `run` is then a run like that of `boxmend train`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boxmend.integrations.versions import ensure_supported

if TYPE_CHECKING:
    from boxmend.integrations.ultralytics.attaching import Mending, attach
    from boxmend.integrations.ultralytics.several_gpus import MendingTrainer, configure
    from boxmend.integrations.ultralytics.training import train

__all__ = ["Mending", "MendingTrainer", "attach", "configure", "train"]

_MODULES = {
    "Mending": "attaching",
    "MendingTrainer": "several_gpus",
    "attach": "attaching",
    "configure": "several_gpus",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use; raise a UsageError without a supported Ultralytics."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ensure_supported("ultralytics")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
