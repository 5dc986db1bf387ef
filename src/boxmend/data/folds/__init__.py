"""Folds: splits of a dataset with which any trainer predicts images that it was not trained on.

`write_folds` writes k pairs of datasets, train and test, in the format of the input, and a
manifest that assigns each image to a fold. `read_manifest` reads the manifest for a dataset.
"""

from boxmend.data.folds.manifest import FOLDS_FILE, FoldManifest, fold_folder, read_manifest
from boxmend.data.folds.splitting import FRAMES, FoldSettings, assign_folds
from boxmend.data.folds.writing import Folds, write_folds

__all__ = [
    "FOLDS_FILE",
    "FRAMES",
    "FoldManifest",
    "FoldSettings",
    "Folds",
    "assign_folds",
    "fold_folder",
    "read_manifest",
    "write_folds",
]
