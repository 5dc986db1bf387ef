"""How fast a training step is, measured side by side in one run (`measuring.speed`).

The plain recipe of torchvision against `baseline`, `mend-paper` and `mend`, by blocks of steps
taken in turns; with the share of each stage, the growth with objects and queue, and several
trainings at once. What counts are the ratios within one run.
"""
