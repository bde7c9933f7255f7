"""The state of a journal and of its queues, changed by folding records of the control log and by nothing else.

Reading order: `lifecycle` (the states of a message and what moves it), `lease`, `subscription` and `ledger` (one queue),
`journal_state` (the journal); one idea each: `attempt` and `in_doubt`, `alarm`, `faults`, `dead_letter`, `ownership`,
`peer_changes`, `selection`, `done_requests`. Questions to it: `letters` and `letter_kinds`, `age`, `status`, `log_history`.
"""
