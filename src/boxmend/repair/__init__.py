"""Repair datasets: choose and apply changes, revert them, and export them for review."""
