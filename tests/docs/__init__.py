"""README.md and docs/ as their tests see them: pages, examples that run, and parts that are generated."""
