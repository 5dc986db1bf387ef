"""Mend annotations while an Ultralytics YOLO detector learns from them.

    from boxmend.integrations import ultralytics as mending

    model = YOLO("yolo11n.yaml")
    mending.attach(model, out="run")
    model.train(data="data.yaml", epochs=100)

Every few epochs, the averaged weights predict the training images without augmentation, a
`boxmend.Mender` judges the annotations by these detections, and the training continues with the
mended ones. `run` is then a run like that of `boxmend train`.
"""

from boxmend.integrations.ultralytics.versions import ensure_supported

ensure_supported()

from boxmend.integrations.ultralytics.attaching import (  # noqa: E402  # needs the package
    Mending,
    MendingTrainer,
    UpdateSchedule,
    attach,
    configure,
)

__all__ = ["Mending", "MendingTrainer", "UpdateSchedule", "attach", "configure"]
