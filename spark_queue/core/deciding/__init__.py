"""Every decision: from a command and the state to records and a reply. Nothing else decides.

Reading order: `core.engine`, `handlers` (which command goes where, and what follows from each record), `unit_of_work` (one
command's work on one queue); `delivery` (what planners ask), `granting` and `fairness` (who is given what), `settlement` and
`removal` (how messages leave a lease), `sinks` (batches that are acknowledged by being appended), `manual_settlement` (people),
`timers` (what falls due); one idea each, when you meet it: `barrier`, `isolation`; `instances` for replicated queues.
"""
