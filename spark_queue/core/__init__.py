"""The core: every decision about leases, backlogs, returns and removals, and nothing else.

Three rules hold here:

1. No Spark, Delta, socket, file, clock, random number or log. Time is handed in as ``now_ms``; facts that need a message's
   body are computed outside and handed in.
2. State changes only by folding records. A command decides, makes records and folds them; recovery, views of the past and
   `verify` fold the same records with the same code, so live and recovered state cannot differ.
3. Every rule of a queue lives here and nowhere else. Shells ask, commit what was decided, and answer.

Read `lifecycle` first, then `ledger` (the state of one queue), `fold` (of the journal), and `engine` (the commands, whose
parts are `delivery`, `settlement` and `upkeep`).
"""
