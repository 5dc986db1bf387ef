"""Verdicts that people gave in Label Studio or CVAT, read back as verdicts on fixes."""
