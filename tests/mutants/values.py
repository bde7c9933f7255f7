"""Bugs in what becomes of values on their way in, and in how people are shown them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ANY = "tests/unit/journal/test_any_value.py"
_FAR = ("tests/unit/cli/test_far_values.py",)

VALUES = (
    Mutant(
        "a place that Spark alone knows is taken for a directory",
        "    if _OF_HADOOP.match(path) is not None:\n", "    if False:\n",
        ("tests/unit/journal/test_delta.py::test_a_path_that_spark_alone_understands_is_no_directory",),
    ),
    Mutant(
        "options that nobody gave take the place of the environment's",
        "client_options)) if given}", "client_options))}",
        ("tests/unit/journal/test_delta.py::test_options_that_are_not_given_are_left_to_the_environment",),
    ),
    Mutant(
        "a value is not compared with what it became",
        "    lost = next(changed(column, texts, done, timezone), None)\n", "    lost = None\n",
        ("tests/unit/journal/test_casting.py", _ANY),
    ),
    Mutant(
        "a text that is no UTF-8 ends the expressions of everybody",
        "            table.validate(full=True)\n", "            pass\n",
        ("tests/unit/expression/test_limits.py::test_a_text_that_is_no_utf8_fails_its_own_row_only",), within="Program",
    ),
    Mutant(
        "an engine that has ended is asked again",
        "            _engine.cache_clear()\n", "",
        ("tests/unit/expression/test_limits.py::test_an_engine_that_has_ended_is_replaced",),
    ),
    Mutant(
        "a time of pandas is stored with another year",
        "            if not date.min.year <= value.year <= date.max.year:\n", "            if False:\n",
        ("tests/unit/journal/test_rows.py",),
    ),
    Mutant(
        "a map is stored with a key twice",
        "        if len(twice):\n", "        if False:\n", ("tests/unit/journal/test_rows.py",),
    ),
    Mutant(
        "a mark at the start of the rows of CSV is dropped",
        "io.BytesIO(codecs.BOM_UTF8 + rows)", "io.BytesIO(rows)", ("tests/unit/cli/test_csv_rows.py",),
    ),
    Mutant(
        "old times of Parquet lose their nanoseconds",
        "            _refuse_nanoseconds(given, kept)\n", "            pass\n", ("tests/unit/cli/test_publish.py",),
    ),
    Mutant(
        "a part of a merged file is merged again as if it were all of it",
        "is_next and (not of_one_delay or before.due_at_ms == segment.due_at_ms)",
        "is_next and before.due_at_ms == segment.due_at_ms", ("tests/unit/replication/test_sites.py",),
    ),
    Mutant(
        "types stand in each other as deep as anybody likes",
        "        if self._depth > _DEPTH_MAX:\n", "        if False:\n", ("tests/unit/journal/test_schema.py",),
    ),
    Mutant(
        "a DECIMAL is read of what is no number",
        "    if not _NUMBER.fullmatch(text):", "    if not text:",
        (f"{_ANY}::test_value_is_stored_as_it_is_or_refused_by_name[dicts-DECIMAL(8,2)]",),
    ),
    Mutant(
        "a time of a year that nobody has is stored",
        "    _check_years(column, told=lambda row: far_time(column[row]))\n", "",
        (f"{_ANY}::test_value_that_no_reader_could_take_is_refused",),
    ),
    Mutant(
        "a text of a year that nobody has is stored",
        "    _check_years(done, told=lambda row: str(texts[row]))\n", "",
        (f"{_ANY}::test_text_of_a_csv_file_is_stored_as_it_is_or_refused_by_name[DATE]",),
    ),
    Mutant(
        "a text that is no UTF-8 is stored",
        "        column.validate(full=True)\n", "        column.validate()\n",
        (f"{_ANY}::test_value_that_no_reader_could_take_is_refused",),
    ),
    Mutant(
        "a number of a few bytes is written out",
        "value.adjusted() < _WHOLE_DIGITS", "True",
        ("tests/unit/cli/test_publish.py::test_a_file_that_cannot_be_meant_is_refused_by_name",),
    ),
    Mutant(
        "a large number is taken for a text",
        "pa.int64(), wanted, kind, epoch)", "pa.string(), wanted, kind, epoch)",
        (f"{_ANY}::test_value_is_stored_as_it_is_or_refused_by_name[dicts-BINARY]",),
    ),
    Mutant(
        "a name of a frame's index is dropped",
        "frame.index.names if any(name is not None for name in frame.index.names) else ()", "()",
        ("tests/unit/journal/test_frames.py",),
    ),
    Mutant(
        "a body may say a key twice",
        "(parse_int=str, parse_float=str, parse_constant=_constant, object_pairs_hook=_once)",
        "(parse_int=str, parse_float=str, parse_constant=_constant)",
        ("tests/unit/journal/test_rows.py::test_json_refuses_texts_that_are_none",),
    ),
    Mutant(
        "a quote that is not closed takes the rest of the file",
        "    if end < len(last):\n", "    if end > len(last):\n", ("tests/unit/cli/test_csv_rows.py",),
    ),
    Mutant(
        "text behind a closing quote is a part of the value",
        """(?:""[^"]*+)*+"|(?!")""", """(?:""[^"]*+)*+"[^,\\r\\n]*+|(?!")""", ("tests/unit/cli/test_csv_rows.py",),
    ),
    Mutant(
        "a sequence number may leave too few for its rows",
        "first <= 2**_BITS - row_count)", "first < 2**_BITS)", ("tests/unit/client/test_publish_arguments.py",),
    ),
    Mutant(
        "one value that cannot be shown hides all messages that are found",
        "    return python_rows(found), None\n", "    return found.to_pylist(), None\n", _FAR,
    ),
    Mutant(
        "whole numbers lose digits in pandas",
        "if column.null_count]\n    columns", "if not column.null_count]\n    columns", _FAR,
    ),
    Mutant(
        "a frame of a class of one's own is guessed at by Arrow",
        "for base in type(data).__mro__)", "for base in type(data).__mro__[:1])", ("tests/unit/journal/test_frames.py",),
    ),
    Mutant(
        "a duration of NumPy's is stored as a number",
        "    if issubclass(kind, np.timedelta64):\n", "    if False:\n", ("tests/unit/journal/test_rows.py",),
    ),
    Mutant(
        "a protocol that names its features forgets what was implied",
        "    named = known | used\n", "    named = used\n", ("tests/unit/journal/test_table_features.py",),
    ),
    Mutant(
        "a column that is appended leaves the protocol as it is",
        "if raised != protocol((), {}, before) else []", "if raised == before else []",
        ("tests/unit/journal/test_table_features.py",),
    ),
    Mutant(
        "NaN is out of the bounds that a file tells of its rows",
        '_FLOATING = frozenset({"FLOAT", "DOUBLE"})', '_FLOATING = frozenset({"FLOAT"})',
        ("tests/unit/journal/test_parquet_bounds.py",),
    ),
    Mutant(
        "a file of one zero is passed over by who looks for the other",
        "return _number(low or -0.0), _number(high or 0.0)", "return _number(low), _number(high)",
        ("tests/unit/journal/test_parquet_bounds.py",),
    ),
    Mutant(
        "bounds are missing among others",
        "    if len(known) < len(bounds):\n        return found\n", "", ("tests/unit/journal/test_parquet_bounds.py",),
    ),
    Mutant(
        "a message table does not say of which columns its files tell",
        "schema=declared, journal_id=journal_id, properties=delta.MESSAGE_PROPERTIES)", "schema=declared, journal_id=journal_id)",
        ("tests/unit/journal/test_parquet_bounds.py",),
    ),
    Mutant(
        "an empty text is NULL in a partition that may not be",
        "            if value is None and not plan.schema.field(name).nullable:\n", "            if False:\n",
        ("tests/unit/sinks/test_table.py",),
    ),
    Mutant(
        "verify says nothing of a table that Spark cannot open",
        "            if unnamed:\n", "            if False:\n", ("tests/unit/cli/test_looking.py",),
    ),
    Mutant(
        "a message that expires with the last moment there is cannot be published",
        "min(-(-self.expires_max_us // 1_000), _LAST_MS)", "-(-self.expires_max_us // 1_000)",
        ("tests/unit/journal/test_staging.py",),
    ),
    Mutant(
        "a small decimal of Arrow's is no whole number",
        "have is TypeKind.DECIMAL and column.type.bit_width < 128:", "False:", ("tests/unit/journal/test_casting.py",),
    ),
    Mutant(
        "two zeros are two keys of a map",
        "pc.add(elements, pa.scalar(0.0, elements.type)) if", "elements if", ("tests/unit/journal/test_casting.py",),
    ),
    Mutant(
        "intervals of a Parquet file are stored as bytes",
        "    if intervals:\n", "    if False:\n", ("tests/unit/cli/test_publish.py",),
    ),
    Mutant(
        "the lowest number of a type is taken and fails on every message",
        "_BEYOND = frozenset(", "_BEYOND = frozenset() & set(", ("tests/unit/expression/test_expressions.py",),
    ),
    Mutant(
        "a change of what follows from other keys is shown as none",
        "if key.name in stored or value == key.value:", "if key.field:", ("tests/unit/client/test_changes.py",),
    ),
    Mutant(
        "a name of a catalog is taken for a directory",
        "    if _OF_CATALOG.fullmatch(path) is not None:\n", "    if False:\n",
        ("tests/unit/journal/test_delta.py::test_a_name_with_dots_and_no_slash_is_a_table_s_and_no_directory",),
    ),
    Mutant(
        "a column of messages hides one of the queue that is called so",
        "        while not taken.add(name):\n", "        while False:\n", ("tests/unit/journal/test_schema.py",),
    ),
    Mutant(
        "what a message says is taken for its outcome",
        "    if unclear is not None and len(found) > len(columns):\n", "    if False:\n", ("tests/unit/client/test_outcomes.py",),
    ),
    Mutant(
        "names that a message type renames mean nothing",
        "return self._names.get(self._renamed.get(name.lower(), name).lower())", "return self._names.get(name.lower())",
        ("tests/unit/journal/test_rows.py",),
    ),
    Mutant(
        "digits behind the microseconds of a text are dropped",
        '_FINER.replace("([0-9]+)", "0+")', '_FINER.replace("([0-9]+)", "[0-9]+")', ("tests/unit/journal/test_rows.py",),
    ),
    Mutant(
        "a part of a microsecond is dropped from a number that is a time",
        "        if count != count.to_integral_value():\n", "        if False:\n", ("tests/unit/cli/test_publish.py",),
    ),
    Mutant(
        "a column that is left out must be another one of the file",
        "    ColumnNames(names).resolve(set(dropped), where=\"the file\")\n", "", ("tests/unit/cli/test_publish.py",),
    ),
)  # fmt: skip
