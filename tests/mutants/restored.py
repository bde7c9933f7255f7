"""Bugs in how a journal that was put back from a backup finds out what it has lost, and goes on."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WORLDS = ("tests/simulation/test_whole_instances.py",)
_PULLERS = ("tests/unit/replication/test_pullers.py",)
_LOOP = ("tests/unit/coordinator/test_loop_pulls.py",)

RESTORED = (
    Mutant(
        "nobody remembers how far a journal was pulled before it was restored",
        "    return (mark for mark in marks if mark.journal == journal and mark.record >= 0)\n", "    return iter(())\n", _WORLDS,
    ),
    Mutant(
        "a restored peer is read on behind where it was read before",
        "            until = min(until", "            min(until", _WORLDS,
    ),
    Mutant(
        "a peer whose store fails behind its first record is taken for another one",
        "refusal is None and records[-1].record > 0", "refusal is None", ("tests/unit/replication/test_puller.py",),
    ),
    Mutant(
        "of a peer that is read again nobody finds out that it was restored",
        "watermark if until >= 0 else newest_mark(self._own, watermark.journal)", "watermark if until >= 0 else None",
        ("tests/unit/replication/test_restored.py",),
    ),
    Mutant(
        "what is published after a restore keeps the origin of what was lost",
        "restorations)], instance)\n    renew_origins(state.message_types, state.peer_changes.restorations)\n",
        "restorations)], instance)\n", _WORLDS,
    ),
    Mutant(
        "messages enter before the peers were searched for what is lost",
        "return are_compared or not", "return True or not", _LOOP,
    ),
    Mutant(
        "messages are taken over before all peers were searched for what is lost",
        "while not self._pullers.are_compared() and", "while False and", _PULLERS,
    ),
    Mutant(
        "who fixes a place in the log does not wait until messages may enter",
        "return fixes_place(command) and not", "return False and not", _LOOP,
    ),
    Mutant(
        "a peer that answers nothing keeps others from being pulled for ever",
        " and time.monotonic() < until_s:", ":", _PULLERS,
    ),
    Mutant(
        "what a peer has shown of a restore stays, though it shows it no more",
        "self.is_compared, self.restored = True, None", "self.is_compared = True", _PULLERS, within="_meet",
    ),
    Mutant("what was in line when somebody said that the journal was restored is taken over", " or request.is_over():", ":", _LOOP),
    Mutant(
        "a store that fails takes back that the journal was restored",
        "                    self.restored = trouble\n",
        "                    self.restored = None\n", _PULLERS,
    ),
    Mutant(
        "a log that is put back while it is read is refused",
        "                self._log.check_last()\n", "                pass\n", ("tests/unit/replication/test_restored.py",),
    ),
)  # fmt: skip
