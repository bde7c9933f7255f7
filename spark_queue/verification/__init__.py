"""Invariants of a journal, independent of the code that decides: for simulations, kill tests and `sparkq verify`."""
