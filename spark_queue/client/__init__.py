"""The caller's side: what users hold of a journal and its queues, and how they reach its coordinator."""
