"""boxmend finds and fixes errors in object-detection annotations, in your own files.

`load` reads COCO, VOC and YOLO files into a `Dataset` of columns. `Dataset.save` writes changes
back and keeps all other bytes of the files.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxmend.auditing.audit import AuditSettings
    from boxmend.auditing.folders import audit_predictions, audit_run
    from boxmend.auditing.predictions import Predictions, read_predictions
    from boxmend.data.checks import check
    from boxmend.data.dataset import Dataset
    from boxmend.data.diff import compare
    from boxmend.data.formats import load
    from boxmend.data.noise import NoiseSettings, disturb
    from boxmend.data.synth import synthesize
    from boxmend.data.table import Table
    from boxmend.errors import BoxmendError
    from boxmend.methods.refiner import Refiner
    from boxmend.repair.apply import ApplySettings, apply, revert
    from boxmend.repair.audit_results import AuditResult, audit
    from boxmend.repair.export import ExportOptions, export
    from boxmend.repair.importing.verdicts import import_verdicts
    from boxmend.repair.mended import MendedDataset
    from boxmend.repair.mender import Mender, MenderSettings
    from boxmend.repair.trained_runs import TrainedRun, open_run
    from boxmend.runs.settings import TrainSettings
    from boxmend.training.evaluation import evaluate
    from boxmend.training.label_probabilities import prescreen
    from boxmend.training.prediction import predict
    from boxmend.training.train import train
    from boxmend.web.report.writing import ReportSettings, write_report

__version__ = "0.1.0"
__all__ = [
    "ApplySettings",
    "AuditResult",
    "AuditSettings",
    "BoxmendError",
    "Dataset",
    "ExportOptions",
    "MendedDataset",
    "Mender",
    "MenderSettings",
    "NoiseSettings",
    "Predictions",
    "Refiner",
    "ReportSettings",
    "Table",
    "TrainSettings",
    "TrainedRun",
    "apply",
    "audit",
    "audit_predictions",
    "audit_run",
    "check",
    "compare",
    "disturb",
    "evaluate",
    "export",
    "import_verdicts",
    "load",
    "open_run",
    "predict",
    "prescreen",
    "read_predictions",
    "revert",
    "synthesize",
    "train",
    "write_report",
]

_MODULES = {
    "ApplySettings": "boxmend.repair.apply",
    "AuditResult": "boxmend.repair.audit_results",
    "AuditSettings": "boxmend.auditing.audit",
    "BoxmendError": "boxmend.errors",
    "Dataset": "boxmend.data.dataset",
    "ExportOptions": "boxmend.repair.export",
    "MendedDataset": "boxmend.repair.mended",
    "Mender": "boxmend.repair.mender",
    "MenderSettings": "boxmend.repair.mender",
    "NoiseSettings": "boxmend.data.noise",
    "Predictions": "boxmend.auditing.predictions",
    "Refiner": "boxmend.methods.refiner",
    "ReportSettings": "boxmend.web.report.writing",
    "Table": "boxmend.data.table",
    "TrainSettings": "boxmend.runs.settings",
    "TrainedRun": "boxmend.repair.trained_runs",
    "apply": "boxmend.repair.apply",
    "audit": "boxmend.repair.audit_results",
    "audit_predictions": "boxmend.auditing.folders",
    "audit_run": "boxmend.auditing.folders",
    "check": "boxmend.data.checks",
    "compare": "boxmend.data.diff",
    "disturb": "boxmend.data.noise",
    "evaluate": "boxmend.training.evaluation",
    "export": "boxmend.repair.export",
    "import_verdicts": "boxmend.repair.importing.verdicts",
    "load": "boxmend.data.formats",
    "open_run": "boxmend.repair.trained_runs",
    "predict": "boxmend.training.prediction",
    "prescreen": "boxmend.training.label_probabilities",
    "read_predictions": "boxmend.auditing.predictions",
    "revert": "boxmend.repair.apply",
    "synthesize": "boxmend.data.synth",
    "train": "boxmend.training.train",
    "write_report": "boxmend.web.report.writing",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import boxmend` and `boxmend --help` are fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'boxmend' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
