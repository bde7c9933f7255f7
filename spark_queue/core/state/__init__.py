"""The state of a journal and of its queues, changed by folding records of the control log and by nothing else.

Reading order: `lifecycle` (the states of a message and what moves it), `lease` and `ledger` (one queue), `journal_state` (the
journal), `folds` (what each kind of record changes); one idea each: `attempt`, `alarm`, `dead_letter`, `ownership`. What is asked
of it: `letters`, `status`, `log_history`.
"""
