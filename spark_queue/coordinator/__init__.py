"""The coordinator: the one process that decides about the queues of a journal. The design in prose.

What the control log decides
----------------------------
The reign, and every answer that was ever given. A reign begins with a claim, one compare-and-swap that writes the next epoch;
its winner reigns until the next claim, and needs no permission from the last one. Every later commit of the reign is a swap
at the head that carries the epoch, and after every commit, and before every answer that needs none, the reign looks again: the
head is its own last commit, the epoch its own. Otherwise it is over. No answer leaves before that, so an answered command is
durable, and an unanswered one may be asked again.

What decides nothing
--------------------
Host-local locks, `coordinator.json`, pings and the clocks of others. They delay a claim so that a living coordinator is not
deposed, and save callers a search. With all of them wrong at once, coordinators replace each other more often than they
should, and no message is lost or granted twice.

What the coordinator's clock may decide
---------------------------------------
When leases, delays and messages expire, and nothing about who reigns. The wall clock is read once, when a reign begins; its time
starts there or at the last record, whichever is later, and then moves with the monotonic clock. So time in the log never goes
back, and setting the clock during a reign changes nothing. A log more than a day ahead of the clock is refused (CLOCK_SKEW). At
take-over every open lease gets a third of its period, so that a living holder can renew before anything expires; so it does when
the process was stopped while it waited for calls, and goes on.

The states of a process
-----------------------
::

            started ── with `--standby`: stands by while another one serves, answers COORDINATOR_STANDS_BY
               │  listens, loads the log
               ▼                    the last claim's address answers
           candidate ──────────────────────────────────────────────▶ gone (tells its starter that address)
               │  that address refuses, or is silent for 10 s;
               │  another host's advertisement stands still for 15 s;  the swap is refused
               │  claims the next epoch by swap ──────────────────────────────────▶ gone (ask again)
               ▼
          recovering ── answers COORDINATOR_RECOVERING
               │  folds the log, commits the take-over              it cannot recover
               ├──────────────────────────────────────────────────▶ gone (tells callers why)
               ▼
            serving ── one group after the other:
               │       drain ▸ decide ▸ one commit or one check ▸ answer
               ├── stopped, or idle for `coordinator_idle` ───────▶ gone (in good order, removes its advertisement)
               └── any doubt ─────────────────────────────────────▶ gone (at once, answers nothing)

What happens on each failure
----------------------------
- *Killed before a commit:* nothing happened. Callers lose the connection, start the next coordinator, and repeat their request.
- *Killed after a commit, before the answer:* the repeat finds the lease in the log and is given the same one.
- *Outcome of a commit unknown (I/O error, timeout):* the process ends; the next one reads from the log what happened.
- *Stopped and continued after its reign:* its next swap is refused. If clean-up had removed the version that it writes, the
  write succeeds where nobody reads; the look after the commit finds another head and epoch. A thread that renews the
  advertisement also finds the newer epoch there and ends the process, should nobody call.
- *The host that serves is gone:* a stand-in has heard nothing for 12 s, by its own clock, and claims. Callers that know its
  address go there with the same requests.
- *A stand-in was wrong:* it has deposed a living coordinator, which ends at its next commit or look. That costs a pause.
- *Two starters at once:* on one host the second waits for the first. On two, or without the lock, one swap wins.
- *The driver that started it is killed:* nothing; the coordinator leads a session of its own.
- *A planner is killed:* its long poll is dropped, its lease ends by time or is taken over by its next start (P2).
- *Something raises while one queue is worked on:* uncommitted records are dropped, the log is folded again, the queue is set aside
  by a record, and everybody else's commands are done again (R122). A command that raises before it recorded anything is refused.
- *A message log cannot be read on, or a message file is gone:* messages before it are delivered; then that type's callers hear of
  it by name. Other types go on. A commit of messages enters as a whole or not at all.
- *The journal is copied meanwhile:* advertisement and last claim of the copy lead to the original's coordinator. Every call names
  the place of its journal, and one for another place is refused, as if nobody were there; so the copy gets a coordinator of its
  own.
- *The advertisement cannot be written, or the logs not shortened:* a warning in the log; slower, not wrong.

Where to read
-------------
`flight_port`, `server`, `logins`, `proofs` and `inbox` (how calls arrive), `loop`, `rights` and `commands` (their way
through the core), `alarm_bell`, `pulling` (news of peers), `election`, `reign_clock` and `standby` (the reign), `process` and
`recovery` (from start to end). Calls on the wire, and the files by which callers find a coordinator, are in `protocol`; the
callers' side is in `client`; how messages enter is in `journal.entering`.
"""
