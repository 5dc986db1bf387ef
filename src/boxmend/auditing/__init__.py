"""Audits: which annotations are wrong, with what probability, and how to fix them."""
