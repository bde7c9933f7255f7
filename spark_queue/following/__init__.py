"""Logs that are followed: a state, a history and metrics that keep up with each journal, for whoever asks again and again.

`log_reader` reads a control log forward, and `follower` keeps one folded state for each journal. `journal_look` is what a
follower shows of it. `history` keeps what charts are made of, with `traces` of queues, `owners` of replicated ones, and `steps`,
the numbers of both. `followed_metrics` tells machines. The page asks it, and so does ``sparkq metrics --every``, which serves
nothing.
"""
