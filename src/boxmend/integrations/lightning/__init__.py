"""Mend annotations while a detector learns from them in a Lightning training.

    from boxmend.integrations.lightning import MendingCallback

    mending = MendingCallback(dataset, "run", predict=predict, exchange=exchange)
    lightning.Trainer(max_epochs=50, callbacks=[mending]).fit(module, loader)

Lightning has no standard for detections or datasets, so you write two functions: `predict` returns
the detections of your module on its training images, and `exchange` passes the mended annotations
to your dataset.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from boxmend.integrations.versions import ensure_supported

if TYPE_CHECKING:
    from boxmend.integrations.lightning.callbacks import MendingCallback

__all__ = ["MendingCallback"]


def __getattr__(name: str) -> Any:
    """Import a name on first use; raise a UsageError without a supported Lightning."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ensure_supported("lightning")
    return getattr(import_module(f"{__name__}.callbacks"), name)
