"""A second, simpler model of a control log: by its records alone, so that an error in the fold cannot hide itself."""
