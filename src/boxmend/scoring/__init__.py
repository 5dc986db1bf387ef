"""Scores: of detections, of corrections, and of tools that find wrong annotations."""
