"""Bugs in what a commit of a followed table means, and in what of its log is believed (R141 to R157)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JUDGE = ("tests/unit/core/test_followed_table.py",)
_LOG = ("tests/unit/journal/test_followed_log.py",)
_COPIES = ("tests/unit/journal/test_table_copies.py",)
_LOSSES = ("tests/unit/journal/test_table_losses.py",)

_SHOWN = ("tests/integration/test_following_shown.py::test_explain_reads_the_row_of_its_message_from_the_table",)

FOLLOWING = (
    Mutant(
        "a queue stays out although its missing file was given up",
        "standing = self._standing_of(self.message_types[request.queue.message_type].segments)",
        "standing = [self.foresight.place(each) for each in self.message_types[request.queue.message_type].segments]",
        _LOSSES,
    ),
    Mutant(
        "nothing is copied before the first version of a table made anew",
        "    version: Annotated[int, msgspec.Meta(ge=-1, lt=NUMBER_MAX)]\n    token: Text\n    files:",
        "    version: Annotated[int, msgspec.Meta(ge=0, lt=NUMBER_MAX)]\n    token: Text\n    files:",
        _COPIES,
    ),
    Mutant(
        "a part of a table's file is taken for one of a merged file",
        "if segment.merged and segment.table is None:",
        "if segment.merged:",
        _SHOWN,
    ),
    Mutant(
        "a part of a table's file counts its rows from its own first one",
        "first=segment.first - segment.first_row,",
        "first=segment.first,",
        _SHOWN,
    ),
    Mutant("a compaction's files enter as new rows", "return is_append and file.data_change and", "return is_append and", _JUDGE),
    Mutant(
        "a file enters again that a commit had added before",
        " and file.path not in known.added and file.has_rows",
        " and file.has_rows",
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
        "due_files(state, message_type, now_ms=now_ms) if not file.needed)",
        "due_files(state, message_type, now_ms=now_ms) if False)",
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
    Mutant(
        "needed messages are copied when VACUUM may take them",
        "after_ms = kept_ms // 3 if",
        "after_ms = kept_ms if",
        _COPIES,
    ),
    Mutant(
        "a copy is recorded that lacks what a queue needs by now",
        "if not needed or not needed.issubset(to_bitmap(copied.file.kept or ())):",
        "if not needed:",
        _COPIES,
    ),
    Mutant(
        "a copy is recorded of a file that the table has again",
        "    return next((file.needed for file in found), BitMap64())\n",
        "    return next((file.needed for file in found), segment.present)\n",
        _COPIES,
    ),
    Mutant(
        "a start looks for messages that no copy has",
        "                    self._let_go(str(record.message_type), *_left_behind(file))\n",
        "",
        _COPIES,
    ),
    Mutant(
        "a copy has other messages at the places of its file",
        "        places[here] = here\n",
        "        places[np.arange(len(here))] = here\n",
        _COPIES,
    ),
    Mutant(
        "of a type that is set aside the files are waited for whose removal was read",
        "        if self.stopped is None or path not in self.entered:\n",
        "        if True:\n",
        _COPIES,
    ),
    Mutant(
        "a type that is set aside by a gap waits as long as any other",
        "self._stop(message_type, trouble, since_ms=0, now_ms=now_ms)",
        "self._stop(message_type, trouble, since_ms=now_ms, now_ms=now_ms)",
        _COPIES,
    ),
    Mutant(
        "what the skipped versions removed is forgotten",
        "removed=tuple(_removed(folder, definition, known, start) if is_same",
        "removed=() and tuple(_removed(folder, definition, known, start) if is_same",
        _LOSSES,
    ),
    Mutant(
        "a refusal of the store is taken for a file that is gone",
        '            _LOG.warning("Nobody knows whether',
        "            yield MissingFile(message_type=segment.message_type, path=segment.path, first=segment.first)\n"
        '            _LOG.warning("Nobody knows whether',
        _LOSSES,
    ),
    Mutant(
        "a table that is away has lost its files",
        "return not folder.store.has(folder.key_of(path)) and bool(",
        "return not folder.store.has(folder.key_of(path)) or not bool(",
        _LOSSES,
    ),
    Mutant(
        "what is lost leaves without a letter",
        "    remove(work, free, Removal.LOST, error=error)\n",
        "    remove(work, free, Removal.PURGED)\n",
        _LOSSES,
    ),
    Mutant(
        "what is lost comes into the dead-letter queue",
        "if home is not None and reason != Removal.LOST:",
        "if home is not None:",
        _LOSSES,
    ),
    Mutant(
        "a lost letter is redriven",
        "    dead -= unlettered_elsewhere(ledger, letters) | ledger.dead_letters.lost\n",
        "    dead -= unlettered_elsewhere(ledger, letters)\n",
        _LOSSES,
    ),
    Mutant(
        "what is in somebody's hand is lost",
        "for state in (*_WAITING, State.DEAD))",
        "for state in (*_WAITING, State.DEAD, State.LEASED))",
        _LOSSES,
    ),
    Mutant(
        "a late proof acknowledges nothing that was lost",
        "    if record.reason != Removal.LOST:\n        # Only the end",
        "    if True:\n        # Only the end",
        _LOSSES,
    ),
    Mutant(
        "a start looks for a file that is lost",
        "    return lost_record(segment)\n",
        "    return None\n",
        _LOSSES,
    ),
    Mutant(
        "the letters of what is lost go by themselves",
        "    old -= unlettered_elsewhere(ledger, letters) | ledger.dead_letters.lost\n",
        "    old -= unlettered_elsewhere(ledger, letters)\n",
        _LOSSES,
    ),
    Mutant(
        "a map is read with less of its keys than tells them apart",
        "has_all = has_all and (not is_key or there.keys() <= wanted.keys())",
        "has_all = has_all",
        _LOG,
    ),
    Mutant(
        "a struct is read with a field that it does not have",
        "has_all = may_lack or wanted.keys() <= there.keys()",
        "has_all = True",
        _LOG,
    ),
    Mutant(
        "the fields of a struct are taken by their places",
        "[(field, column.type.get_field_index(field.name)) for field in kind]",
        "[(field, place) for place, field in enumerate(kind)]",
        ("tests/unit/test_declared_types.py",),
    ),
    Mutant(
        "a slice of lists has the elements of the first ones",
        "column.null_count, column.offset, [inner])",
        "column.null_count, 0, [inner])",
        ("tests/unit/test_declared_types.py",),
    ),
    Mutant(
        "a type goes on by the columns from before the version with which it goes on",
        "_look(folder, definition, min(start + 1, head.version)).meaning",
        "_look(folder, definition, max(start, 0)).meaning",
        _LOG,
    ),
    Mutant(
        "a moment without a zone is taken for one",
        'if kind == "TIMESTAMP" and _ZONE.search(value) is None:',
        "if False:",
        _JUDGE,
    ),
    Mutant("a year that no reader makes out enters", "if kind in TIMES and _DAY.match(value) is None:", "if False:", _JUDGE),
    Mutant(
        "a text of the log is read where the log has none any more",
        "if name in known.columns.texts and physical not in commit.meaning.partition:",
        "if False:",
        _JUDGE,
    ),
    Mutant(
        "the files of another table enter from its beginning",
        "        self._look_back(known.from_version, known.from_token)\n",
        "",
        ("tests/integration/test_following.py",),
    ),
    Mutant(
        "a file that a consumer did not find is looked for as late as any",
        "            unread = self._take_unread(state, name)\n",
        "            unread = BitMap64()\n",
        _LOSSES,
    ),
    Mutant(
        "a file that a consumer did not find is looked for before its messages are back",
        "            taken |= rows - leased\n            if rows.intersect(leased):\n",
        "            taken |= rows\n            if False:\n",
        _LOSSES,
    ),
    Mutant(
        "a receiver is not told how the columns of its file are found",
        "is_barrier=is_barrier, columns=text_of(file),",
        "is_barrier=is_barrier, columns=None,",
        ("tests/integration/test_following.py", "tests/simulation/test_followed.py"),
    ),
    Mutant(
        "the protocol that only a checkpoint of JSON has is passed over",
        "found = [protocol for key in keys for protocol in _of_checkpoint(",
        "found = [protocol for key in keys if key.endswith('.parquet') for protocol in _of_checkpoint(",
        _LOG,
    ),
    Mutant(
        "nobody hears of a file that a stream did not find",
        "            self._journal.look_for_files(command.queue, rows)\n",
        "",
        ("tests/integration/test_following_files.py",),
    ),
    Mutant(
        "what came back without its file counts until the first round of a reign",
        "redriving.end_settled)\n        self._lose_given_back(now_ms)\n",
        "redriving.end_settled)\n",
        _LOSSES,
    ),
    Mutant(
        "rows that a vector deleted are messages",
        "return found if segment.is_whole else {",
        "return found if True else {",
        ("tests/unit/journal/test_deletion_vector.py",),
    ),
    Mutant(
        "a vector is believed that is not whole",
        'zlib.crc32(found).to_bytes(4, "big") != checksum:',
        "False:",
        ("tests/unit/journal/test_deletion_vector.py",),
    ),
    Mutant(
        "a peer that follows a table is refused for it",
        "    if is_of_table(record, known):\n        return\n",
        "",
        ("tests/unit/replication/test_news.py", "tests/unit/replication/test_puller.py"),
    ),
    Mutant(
        "rows of a table that a peer follows are copied from its journal",
        " and not is_of_table(record, self._fold)",
        "",
        ("tests/unit/replication/test_puller.py",),
    ),
)
