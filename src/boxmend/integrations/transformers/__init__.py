"""Mend annotations while a detector of Hugging Face's Transformers learns from them.

    from boxmend.integrations.transformers import MendingTrainerCallback, TrainingImages, collate

    images = TrainingImages(dataset, image_processor)
    mending = MendingTrainerCallback(images, "run")
    Trainer(model, args, train_dataset=images, data_collator=collate, callbacks=[mending]).train()

The model is RT-DETR, DETR or another one with an image processor that has
`post_process_object_detection`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boxmend.integrations.versions import ensure_supported

if TYPE_CHECKING:
    from boxmend.integrations.transformers.callbacks import MendingTrainerCallback
    from boxmend.integrations.transformers.images import TrainingImages, collate
    from boxmend.integrations.transformers.predicting import predict

__all__ = ["MendingTrainerCallback", "TrainingImages", "collate", "predict"]

_MODULES = {
    "MendingTrainerCallback": "callbacks",
    "TrainingImages": "images",
    "collate": "images",
    "predict": "predicting",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use; raise a UsageError without supported Transformers."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ensure_supported("transformers")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
