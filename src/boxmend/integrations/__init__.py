"""Mending inside the trainers of other packages; each module imports the package it is for."""
