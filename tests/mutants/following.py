"""Bugs in what a commit of a followed table means, and in what of its log is believed (R141 to R150)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JUDGE = ("tests/unit/core/test_followed_table.py",)
_LOG = ("tests/unit/journal/test_followed_log.py",)

FOLLOWING = (
    Mutant("a compaction's files enter as new rows", "if is_append and file.data_change and", "if is_append and", _JUDGE),
    Mutant(
        "a file enters again that a commit had added before",
        " and file.path not in known.added and file.row_count",
        " and file.row_count",
        _JUDGE,
    ),
    Mutant(
        "a file enters that the table had before", "file.data_change and not file.was_there and", "file.data_change and", _JUDGE
    ),
    Mutant("the old rows of a restore enter", "not commit.removed and commit.operation != RESTORE", "not commit.removed", _JUDGE),
    Mutant("the rewritten rows of a change enter", "is_append = not commit.removed and", "is_append =", _JUDGE),
    Mutant("a change passes where it is to stop", "    if changes and on_change != KEEP:\n", "    if False:\n", _JUDGE),
    Mutant(
        "what a change removes of the messages is forgotten",
        "        removed=tuple((file.path, file.removed_at_ms) for",
        "        removed=() and tuple((file.path, file.removed_at_ms) for",
        _JUDGE,
    ),
    Mutant(
        "what passed and was added may enter later",
        "                self.added.update(passed.added)\n",
        "",
        _JUDGE,
    ),
    Mutant(
        "a file that is there again still counts as removed",
        "                    self.removed.pop(path, None)\n",
        "                    pass\n",
        _JUDGE,
    ),
    Mutant(
        "a column is found by its name where it has another one in files",
        "commit.meaning.columns.get(physical)",
        "commit.meaning.columns.get(name)",
        _JUDGE,
    ),
    Mutant(
        "a table that is made anew keeps its id", "id=known.table_id if commit.meaning is None else", "id=known.table_id or", _JUDGE
    ),
    Mutant(
        "the log is looked back at before it is read on",
        "            found = self._entries(self._read[0] + 1)\n            if self._read[1] and (found or finds_gaps):\n"
        "                self._look_back(*self._read)\n",
        "            self._look_back(*self._read)\n            found = self._entries(self._read[0] + 1)\n",
        _LOG,
    ),
    Mutant(
        "another commit of the version that entered is believed",
        "            if token_of(data) != token:\n",
        "            if False:\n",
        _LOG,
    ),
    Mutant(
        "another table's log is believed where an entry was cleaned away", "if found != self.known.table_id:", "if False:", _LOG
    ),
    Mutant(
        "a gap passes for the head", "                    self._refuse_gap(self._read[0] + 1)\n", "                    pass\n", _LOG
    ),
    Mutant(
        "a path is decoded and then believed", "not is_in_table(written) or not is_in_table(path)", "not is_in_table(written)", _LOG
    ),
    Mutant(
        "a link out of the table is followed",
        "if not is_in_table(path) or not self._is_below(key):",
        "if not is_in_table(path):",
        _LOG,
    ),
    Mutant(
        "a partition value comes from the file",
        "        if name in self.values:\n            value: Any",
        "        if name in self.values and not rows.num_columns:\n            value: Any",
        _LOG,
    ),
    Mutant(
        "a feature that is not known is passed over",
        "- KNOWN_FEATURES - TYPE_FEATURES)",
        "- KNOWN_FEATURES - TYPE_FEATURES - {'catalogManaged'})",
        _LOG,
    ),
    Mutant(
        "columns that are mapped by id are read by name",
        'if mode not in ("none", "name"):',
        'if mode not in ("none", "name", "id"):',
        _LOG,
    ),
    Mutant(
        "what a table has removed is looked for by every start",
        "if segment.path in due and",
        "if False and",
        ("tests/integration/test_following.py::test_what_nobody_needs_is_let_go_before_vacuum_takes_it",),
    ),
    Mutant(
        "a receiver lets go of what it has in hand when nothing more comes",
        "if trouble.code in STOPPING_CODES and not asked.was_empty:",
        "if False:",
        ("tests/integration/test_following.py::test_what_is_in_hand_is_settled_before_a_receiver_hears_that_nothing_more_comes",),
    ),
    Mutant(
        "a type goes on where its messages would enter twice",
        "if not least - 1 <= start <= head.version:",
        "if start > head.version:",
        _LOG,
    ),
)
