"""Every decision: from a command and the state to records and a reply. Nothing else decides.

Reading order: `core.engine`, `handlers` (which command goes where), `agenda` (which queues are looked at), `unit_of_work` (one
command's work on one queue); `delivery` (what planners ask), `granting`, `fairness` and `shares` (who is given what),
`batch_runs` (what a batch says), `outcomes`, `settlement` and `removal` (how messages leave a lease), `manual_settlement`,
`redriving` and `pausing` (people), `timers` (what falls due), `alteration` (new definitions); one idea each, when you meet it:
`barrier`, `isolation`; `instances` for replicated queues.
"""
