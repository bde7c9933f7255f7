"""Every decision: from a command and the state to records and a reply. Nothing else decides.

Reading order: `core.engine`, `handlers` (which command goes where, and the consequences of each record), `unit_of_work` (one
command's work on one queue) and `session`; `delivery` (what planners ask), `planners`, `batch_runs` and `resuming` (what runs
say), `granting`, `free_rows`, `fairness` and `shares` (who is given what), `outcomes`, `settlement` and `removal` (how messages
leave a lease), `sinks` (batches that are acknowledged by being appended), `receiving` (consumers without batches),
`manual_settlement`, `redriving` and `pausing` (people), `timers` and `agenda` (what falls due), `alteration` (new definitions);
one idea each, when you meet it: `barrier`, `isolation`; `instances` for replicated queues.
"""
