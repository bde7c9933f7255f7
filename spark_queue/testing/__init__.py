"""What tests need, shipped for users' own tests: a clock that stands still, a journal in memory, invariants, scenarios."""
