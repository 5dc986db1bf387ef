"""Ultralytics in a test downloads nothing, sends nothing and keeps its settings to itself."""

import os
import tempfile

os.environ["YOLO_OFFLINE"] = "true"
os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp(prefix="boxmend-yolo-")
