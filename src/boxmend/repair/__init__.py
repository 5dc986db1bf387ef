"""Repair: choosing changes, writing them, reverting them, and asking people about them."""
