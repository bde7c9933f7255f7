"""Consumers in plain Python: messages one by one, each settled by a call (R131 to R140).

`Receiver` is what users hold; `Hand` is what it has in hand, and decides what is handed out next; `Session` speaks with the
coordinator; `MessageBodies` reads the messages; `process` runs a function on each.
"""
