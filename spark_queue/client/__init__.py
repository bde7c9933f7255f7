"""The caller's side: the handles of a journal and its queues, and the way to its coordinator."""
