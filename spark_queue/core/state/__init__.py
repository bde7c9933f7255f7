"""The state of a journal and of its queues, changed by folding records of the control log and by nothing else.

Reading order: `lifecycle` (the states of a message and what moves it), `lease` and `ledger` (one queue), `journal_state` (the
journal), `folds` (what each kind of record changes), `depth` (which messages are active); what is asked of it: `letters`, `age`,
`status`.
"""
