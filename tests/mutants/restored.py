"""Bugs in how a journal that was put back from a backup finds out what it has lost, and goes on."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WORLDS = ("tests/simulation/test_whole_instances.py",)
_PULLERS = ("tests/unit/replication/test_pullers.py",)
_LOOP = ("tests/unit/coordinator/test_loop_pulls.py",)

RESTORED = (
    Mutant(
        "nobody remembers how far a journal was pulled before it was restored",
        "spark_queue/replication/restored.py",
        "    return [mark for mark in marks if mark.journal == journal and mark.record >= 0]\n", "    return []\n",
        _WORLDS,
    ),
    Mutant(
        "a restored peer is read on behind where it was read before",
        "spark_queue/replication/puller.py", "            until = shared_until(", "            shared_until(",
        _WORLDS,
    ),
    Mutant(
        "what is published after a restore keeps the origin of what was lost",
        "spark_queue/core/state/folds/peers.py", "restorations)], instance)\n    renew_origins(state)\n",
        "restorations)], instance)\n",
        _WORLDS,
    ),
    Mutant(
        "messages enter before the peers were searched for what is lost",
        "spark_queue/coordinator/peers.py", "return are_compared or now_ms", "return True or now_ms",
        _LOOP,
    ),
    Mutant(
        "messages are taken over before all peers were searched for what is lost",
        "spark_queue/replication/pullers.py", "while not self.are_compared():", "while False:",
        _PULLERS,
    ),
    Mutant(
        "a store that fails takes back that the journal was restored",
        "spark_queue/replication/pullers.py", "                    self.restored = trouble\n",
        "                    self.restored = None\n",
        _PULLERS,
    ),
    Mutant(
        "a log that is put back while it is read is refused",
        "spark_queue/replication/puller.py", "                self._log.check_last()\n", "                pass\n",
        ("tests/unit/replication/test_restored.py",),
    ),
)  # fmt: skip
