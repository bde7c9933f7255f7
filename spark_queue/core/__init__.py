"""The core: every decision about leases, backlogs, returns and removals, and nothing else.

Three rules hold here:

1. No Spark, Delta, socket, file, clock, random number or log. Time is handed in as ``now_ms``; facts that need a message's
   body are computed outside and handed in.
2. State changes only by folding records. A command decides, makes records and folds them; recovery, views of the past and
   `verify` fold the same records with the same code, so live and recovered state cannot differ.
3. Every rule of a queue lives here and nowhere else. Shells ask, commit what was decided, and answer.

Reading order:

- what there is: `lifecycle` (the states and what moves a message), `records` (what is stored), `lease`, `ledger` (one queue);
- how it changes: `fold` (the journal's state), with one function for each kind of record in `folds`;
- what is decided: `engine` (the commands), and behind it `delivery` (what planners ask), `granting` and `fairness` (who is given
  what), `runs` (what a batch says), `settlement` (how messages leave a lease), `by_hand` (people), `timers` (what falls due);
- what is asked for: `keys` (the table of queue keys), `definition`, `parsing`, `alteration`;
- one idea each, when you meet it: `barrier`, `depth`, `isolation`, `alarm`, `dead_letter`, `priority`, `order_key`, `expirations`.
"""
