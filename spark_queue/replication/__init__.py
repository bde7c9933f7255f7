"""Replicated queues: reading a peer's journal, taking its messages and its news over; nothing is ever written to a peer.

`peer_log` reads a peer's control log forward; `news` says what its records mean here; `copying` takes its messages over; `puller`
does all of it for one peer, beside the coordinator's loop, in a process of its own (`sandbox`, `peer_process`); `exchange` is what
the two say to each other.
"""
