"""Measure the speed of training steps side by side in one process (`measuring.measure_speed`).

It compares the plain recipe of torchvision with `baseline`, `mend-paper` and `mend`, by blocks of
steps in turns. It also measures the share of each stage, the growth with objects and queue, and
several trainings at once. Only ratios within one measurement are meaningful.
"""
