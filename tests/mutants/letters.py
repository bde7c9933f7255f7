"""Bugs in how dead letters end, in what comes back too late, and in what a log says of its past."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENARIOS = ("tests/unit/core/test_scenarios.py",)

LETTERS = (
    Mutant(
        "a settled letter stays a dead letter of its source",
        "    if source is not None and over:\n", "    if source is None and over:\n", _SCENARIOS,
    ),
    Mutant(
        "letters that were settled while their source was set aside are not ended",
        "        self._of_each(self.state.queues, now_ms, redriving.end_settled)\n", "",
        ("tests/unit/core/test_letters.py",),
    ),
    Mutant(
        "a dead-letter queue takes another source's letters beside those it has",
        "    if held and source is not None and source != known:", "    if not held and source != known:", _SCENARIOS,
    ),
    Mutant(
        "a dead-letter queue takes the letters of its former source for those of the new one",
        "                old.forget_letters()\n", "                pass\n", _SCENARIOS,
    ),
    Mutant(
        "a letter that died again outlives its source's retention",
        "old & (waiting_letters(letters) | letters.rows[State.DEAD])", "old & waiting_letters(letters)", _SCENARIOS,
    ),
    Mutant(
        "what isolation gives back is never too old",
        "    rows = remove_aged(work, rows, lease=lease)\n", "", _SCENARIOS, within="isolate",
    ),
    Mutant(
        "a suspect is never too old",
        "    rows = remove_aged(work, rows, lease=lease)\n    if not rows:\n", "    if not rows:\n",
        _SCENARIOS, within="give_back_lone",
    ),
    Mutant("a late proof leaves inactive letters", " - letters.rows[State.INACTIVE]", "", _SCENARIOS),
    Mutant("a probe that comes late is not acknowledged", " or (alone and lease.failure is not None):", " or alone:", _SCENARIOS),
    Mutant("a restart reads what somebody cancelled for later", "- lease.leased - later", "- lease.leased", _SCENARIOS),
    Mutant(
        "what was granted is left out when its filter says otherwise by now",
        "    shows_membership = silent = True\n\n    #: The most messages",
        "    silent = True\n\n    #: The most messages",
        ("tests/unit/core/test_records_win.py",),
    ),
    Mutant(
        "what records said before a reset holds after it",
        "                self._told[queue].pop(0)\n", "                pass\n", ("tests/unit/core/test_records_win.py",),
    ),
    Mutant(
        "barriers of the past are found anew at each fold",
        "is_replicated], body.barriers)", "is_replicated], {})",
        ("tests/unit/core/test_records_win.py",), within="applied",
    ),
)  # fmt: skip
