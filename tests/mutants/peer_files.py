"""Bugs in what is refused of a peer's store: what is no file, what costs too much, and what is not what it says of itself."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = "tests/unit/replication"
_STORES = f"{_TESTS}/test_hostile_stores.py"
_REFUSED = f"{_STORES}::test_what_is_no_file_of_a_peer_or_would_keep_whoever_opens_it_is_refused"
_LATER = f"{_STORES}::test_what_comes_later_and_is_no_file_is_refused"
_DEFINITIONS = f"{_STORES}::test_definitions_that_no_peer_may_have_are_refused"

_VERIFY = "tests/unit/cli/test_verify_peers.py"
_ATTACK = f"{_VERIFY}::test_a_peer_that_somebody_spoilt_is_not_compared"


PEER_FILES = (
    Mutant(
        "the process that reads a peer may have all memory",
        "_bound(resource.RLIMIT_DATA, memory_bytes)", "pass", (f"{_STORES}::test_what_takes_more_than_there_may_be_is_refused",),
    ),
    Mutant(
        "the process that reads a peer may take all time",
        "        renew_time(self._cpu_s)\n", "        renew_time(9_999)\n",
        (f"{_STORES}::test_what_takes_longer_than_it_may_is_refused",),
    ),
    Mutant(
        "a process that hangs while it reads a peer is awaited for ever",
        "if not self._pipe.poll(SILENT_S - QUIET_S):", "if not self._pipe.poll(600):",
        (f"{_STORES}::test_a_process_that_dies_or_hangs_is_told_with_what_it_did_and_another_one_goes_on",),
    ),
    Mutant(
        "the process that reads a peer stays",
        "            process.kill()\n            process.wait()\n", "            pass\n", (_STORES,),
    ),
    Mutant(
        "what a process has read is not taken over as it said it",
        "return BitMap64.deserialize(value)", "return BitMap64()", (f"{_STORES}::test_what_is_read_there_is_what_is_read_here",),
    ),
    Mutant(
        "what is no file of a peer is opened",
        "os.path.isfile(found) and os.path.dirname(found) == folder", "os.path.dirname(found) == folder",
        (f"{_REFUSED}[messages in a loop]",),
    ),
    Mutant(
        "a link of a peer may lead anywhere",
        " and os.path.dirname(found) == folder", "", (f"{_REFUSED}[messages elsewhere]", f"{_REFUSED}[records elsewhere]"),
    ),
    Mutant(
        "a next entry may be a link to anywhere",
        "        check_place(self._store, self._peer, log_key(CONTROL, version))\n", "", (f"{_LATER}[_link_to_nothing_of_ours]",),
    ),
    Mutant(
        "a checkpoint of a peer may name further files",
        "if _COMPOUND.fullmatch(entry.key.rsplit(\"/\", 1)[1]) is not None:", "if False:",
        (f"{_REFUSED}[a checkpoint that names further files]",),
    ),
    Mutant(
        "two columns of a peer's file may have one name",
        "if len(set(file.schema_arrow.names)) != len(file.schema_arrow):", "if False:",
        (f"{_TESTS}/test_hostile_journals.py::test_a_file_that_no_peer_may_write_is_refused[two columns of one name]",),
    ),
    Mutant(
        "texts of a peer may be none",
        "            for rows in super().pieces(segment, columns):\n                rows.validate(full=True)\n",
        "            for rows in super().pieces(segment, columns):\n",
        (f"{_TESTS}/test_hostile_journals.py::test_a_file_that_no_peer_may_write_is_refused[texts that are none]",),
    ),
    Mutant(
        "a file of records may have other records than its log says",
        "        if len(rows) != block.last + 1 - first:", "        if False:",
        (f"{_DEFINITIONS}[more records than its log says]",),
    ),
    Mutant(
        "an entry of a peer may hold records with gaps",
        "        if not is_sound or block.records != len(block.rows):\n", "        if False:\n",
        ("tests/unit/replication/test_hostile_journals.py",),
    ),
    Mutant(
        "records of a peer come twice once files have them",
        "if block.last >= next_record]\n            if brought and", "]\n            if brought and",
        ("tests/unit/replication/test_peer_log.py",),
    ),
    Mutant(
        "definitions of a peer may stand in a record of any kind",
        "first=block.last, kinds=(kind,), blocks=(block,)", "first=block.last, blocks=(block,)",
        (f"{_DEFINITIONS}[a record of another kind]",),
    ),
    Mutant(
        "who compares journals believes each record of a peer",
        "        fold.fold(record)\n    return records", "        continue\n    return records",
        (f"{_ATTACK}[a path out of its folder]",),
    ),
    Mutant(
        "what a peer's messages are not ends the comparison of all peers",
        "except DAMAGE as reason:", "except MemoryError as reason:",
        (f"{_VERIFY}::test_a_peer_whose_records_make_no_journal_is_not_compared",), within="peer_state",
    ),
)  # fmt: skip
