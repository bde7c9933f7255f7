"""Consumers in plain Python: messages one by one, each settled by a call (R131 to R140).

Reading order: `message`, `hand` (what a receiver has in hand, and what it hands out next), `session` (its calls), `bodies` (reading
messages), `receiver` (what users hold, and its threads), `batch`, `processing` (a function for each message).
"""
