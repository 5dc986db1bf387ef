"""Datasets: read, write, check and compare annotations, and add noise to them."""
