"""Bugs planted on purpose: each changes a few characters of the product, and the named tests must notice (``make mutants``)."""
