"""Logs that are followed: a view, charts and metrics that keep up with each journal, for callers that ask again and again.

`follower` keeps one folded state for each journal, which a thread keeps up with its log. `history` keeps the data of charts.
The page asks it, and so does ``sparkq metrics --every``, which serves nothing.
"""
