"""Score detections, corrections, and tools that find wrong annotations."""
