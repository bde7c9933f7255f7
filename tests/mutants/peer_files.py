"""Bugs in what is refused of a peer's store: what is no file, what is too large, and what is not what it says of itself."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TESTS = "tests/unit/replication"
_STORES = f"{_TESTS}/test_hostile_stores.py"
_NO_FILE = f"{_STORES}::test_what_is_no_file_of_a_peer_is_refused"
_LATER = f"{_STORES}::test_what_comes_later_and_is_no_file_is_refused"
_SIZE = f"{_STORES}::test_each_size_in_the_folder_of_a_log_is_bounded"
_KEEPS = f"{_STORES}::test_a_log_that_would_keep_whoever_opens_it_is_refused"
_FOOTERS = f"{_TESTS}/test_hostile_footers.py"
_SAYS = f"{_FOOTERS}::test_a_footer_that_says_what_cannot_be_is_refused"
_PARTS = f"{_TESTS}/test_bounded_files.py"
_DEFINITIONS = f"{_TESTS}/test_comparing.py::test_definitions_that_no_peer_may_have_are_refused"

_VERIFY = "tests/unit/cli/test_verify_peers.py"
_ATTACK = f"{_VERIFY}::test_a_peer_is_read_within_the_bounds_of_pulling"

PEER_FILES = (
    Mutant(
        "what is no file of a peer is opened",
        "os.path.isfile(found) and os.path.dirname(found) == folder", "os.path.dirname(found) == folder",
        (f"{_NO_FILE}[messages in a loop]",),
    ),
    Mutant(
        "a link of a peer may lead anywhere",
        " and os.path.dirname(found) == folder", "",
        (f"{_NO_FILE}[messages elsewhere]", f"{_NO_FILE}[records elsewhere]"),
    ),
    Mutant(
        "a next entry may be a link to anywhere",
        "        check_place(self._store, self._peer, log_key(CONTROL, version))\n", "",
        (f"{_LATER}[_link_to_nothing_of_ours]",),
    ),
    Mutant(
        "an entry of a peer's log may have any size",
        'else ENTRY_BYTES if numbered[2] == "json"', 'else 2**60 if numbered[2] == "json"',
        (f"{_SIZE}[ENTRY_BYTES]",),
    ),
    Mutant(
        "a checkpoint of a peer's log may have any size",
        "else CHECKPOINT_BYTES\n", "else 2**60\n",
        (f"{_SIZE}[CHECKPOINT_BYTES]",),
    ),
    Mutant(
        "a hint of a peer's log may have any size",
        "most = _HINT_BYTES if numbered is None", "most = 2**60 if numbered is None",
        (f"{_SIZE}[_HINT_BYTES]",),
    ),
    Mutant(
        "a checkpoint of a peer may name further files",
        "if numbered is None and _COMPOUND.fullmatch(name) is not None:", "if False:",
        (f"{_KEEPS}[a checkpoint that names further files]",),
    ),
    Mutant(
        "a checkpoint of a peer is measured in the store alone",
        "            _check_checkpoint(store, peer, entry.key)\n", "            pass\n",
        (f"{_STORES}::test_a_checkpoint_is_measured_part_by_part",),
    ),
    Mutant(
        "of a checkpoint each part may be as large as all of it",
        "decoded_bytes += part.nbytes", "decoded_bytes = part.nbytes",
        (f"{_STORES}::test_a_checkpoint_is_measured_part_by_part",),
    ),
    Mutant(
        "a footer may have any size",
        "if file.metadata.serialized_size > FOOTER_BYTES:", "if False:",
        (f"{_SAYS}[a footer of 20 MB]",),
    ),
    Mutant(
        "two columns of a peer's file may have one name",
        "if len(set(there)) != len(there):", "if False:",
        (f"{_TESTS}/test_hostile_journals.py::test_a_file_that_no_peer_may_write_is_refused[two columns of one name]",),
    ),
    Mutant(
        "what row groups have together is not compared with their file",
        "if sum(group.num_rows for group in groups) != self.row_count:", "if False:",
        (f"{_SAYS}[thousands of row groups]",),
    ),
    Mutant(
        "a row group may have any number of rows",
        '("rows", group.num_rows, GROUP_ROWS), ', "",
        (f"{_SAYS}[a group of 2^31 rows]", f"{_SAYS}[a group of rows below 0]"),
    ),
    Mutant(
        "a row group may have any number of bytes",
        ', ("bytes", group.total_byte_size, GROUP_BYTES)', ",",
        (f"{_SAYS}[a group of 2^62 bytes]",),
    ),
    Mutant(
        "a row group may have fewer than no bytes",
        "if not 0 <= found <= most:", "if found > most:",
        (f"{_SAYS}[a group of bytes below 0]",),
    ),
    Mutant(
        "a footer is asked for its columns",
        "    for what, found, most in (", "    group.column(0)\n    for what, found, most in (",
        (f"{_FOOTERS}::test_no_footer_ends_the_process",),
    ),
    Mutant(
        "a row of a peer's file may have a list of any length",
        "if most > GROUP_VALUES:", "if False:",
        (f"{_PARTS}::test_one_row_with_many_values_is_refused",),
    ),
    Mutant(
        "a file of a peer may have fewer rows than are wanted",
        "        if left:\n            raise", "        if False:\n            raise",
        (f"{_PARTS}::test_fewer_rows_than_are_wanted_are_refused",),
    ),
    Mutant(
        "a part of a peer's file may be of any size in memory",
        "if size_bytes > GROUP_BYTES:", "if False:",
        (f"{_PARTS}::test_one_long_text_in_many_rows_is_refused",),
    ),
    Mutant(
        "one long text in many structs counts once",
        "return sum(map(_decoded_bytes, values.flatten()))", "return int(array.nbytes)",
        (f"{_PARTS}::test_one_long_text_in_many_rows_is_refused",),
    ),
    Mutant(
        "texts of a peer may be none",
        "            part.validate(full=True)\n", "",
        (f"{_PARTS}::test_a_part_that_is_no_utf_8_is_refused",),
    ),
    Mutant(
        "what is required in structs that are null is read by its dictionary",
        "file if any(map(_is_hollow, self.schema)) else None", "None",
        (f"{_PARTS}::test_what_is_null_comes_back_as_null",),
    ),
    Mutant(
        "a file of records may have other records than its log says",
        " or found.row_count != file.records:", ":",
        (f"{_DEFINITIONS}[more records than its log says]",),
    ),
    Mutant(
        "definitions of a peer may stand in a record of any kind",
        "RecordReader(store, peer, file.last, (kind,))",
        "RecordReader(store, peer, file.last)",
        (f"{_DEFINITIONS}[a record of another kind]",),
    ),
    Mutant(
        "who compares journals believes each record of a peer",
        "        check_path(record, fold)\n", "",
        (f"{_ATTACK}[a path out of its folder]",),
    ),
    Mutant(
        "who compares journals evaluates whatever file a peer has",
        """        check_place(store, peer, f"{messages_key(segment.message_type)}/{segment.path}")\n""", "",
        (f"{_NO_FILE}[messages elsewhere]",),
    ),
    Mutant(
        "what a peer's messages are not ends the comparison of all peers",
        "except DAMAGE as reason:", "except MemoryError as reason:",
        (f"{_VERIFY}::test_a_peer_whose_records_make_no_journal_is_not_compared",), within="peer_state",
    ),
)  # fmt: skip
