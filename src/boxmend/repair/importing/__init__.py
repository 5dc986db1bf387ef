"""Import verdicts that people gave in Label Studio or CVAT."""
