"""A release, as an index gets it, used where there is no checkout. `make release-check` runs it; pytest does not collect it."""
