"""Bugs in what becomes of values on their way in, and in how people are shown them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_JOURNAL = "spark_queue/journal"
_VIEWS = "spark_queue/views"
_ANY = "tests/unit/journal/test_any_value.py"
_FAR = ("tests/unit/cli/test_far_values.py",)

VALUES = (
    Mutant(
        "a value is not compared with what it became",
        f"{_JOURNAL}/conversion.py", "    lost = next(changed(column, texts, done, timezone), None)\n", "    lost = None\n",
        ("tests/unit/journal/test_casting.py", _ANY),
    ),
    Mutant(
        "a DECIMAL is read of what is no number",
        f"{_JOURNAL}/conversion.py", "    if not _NUMBER.fullmatch(text):", "    if not text:",
        (f"{_ANY}::test_value_is_stored_as_it_is_or_refused_by_name[dicts-DECIMAL(8,2)]",),
    ),
    Mutant(
        "a time of a year that nobody has is stored",
        f"{_JOURNAL}/conversion.py", "    _check_years(column, told=lambda row: far_time(column[row]))\n", "",
        (f"{_ANY}::test_value_that_no_reader_could_take_is_refused",),
    ),
    Mutant(
        "a text of a year that nobody has is stored",
        f"{_JOURNAL}/conversion.py", "    _check_years(done, told=lambda row: str(texts[row]))\n", "",
        (f"{_ANY}::test_text_of_a_csv_file_is_stored_as_it_is_or_refused_by_name[DATE]",),
    ),
    Mutant(
        "a text that is no UTF-8 is stored",
        f"{_JOURNAL}/conversion.py", "        column.validate(full=True)\n", "        column.validate()\n",
        (f"{_ANY}::test_value_that_no_reader_could_take_is_refused",),
    ),
    Mutant(
        "a number of a few bytes is written out",
        f"{_JOURNAL}/python_values.py", "value.adjusted() < _WHOLE_DIGITS", "True",
        ("tests/unit/cli/test_publish.py::test_a_file_that_cannot_be_meant_is_refused_by_name",),
    ),
    Mutant(
        "a large number is taken for a text",
        f"{_JOURNAL}/python_values.py", "pa.int64(), wanted, kind)", "pa.string(), wanted, kind)",
        (f"{_ANY}::test_value_is_stored_as_it_is_or_refused_by_name[dicts-BINARY]",),
    ),
    Mutant(
        "a name of a frame's index is dropped",
        f"{_JOURNAL}/rows.py", "frame.index.names if any(name is not None for name in frame.index.names) else ()", "()",
        ("tests/unit/journal/test_frames.py",),
    ),
    Mutant(
        "a body may say a key twice",
        f"{_JOURNAL}/python_values.py", "(parse_int=str, parse_float=str, parse_constant=_constant, object_pairs_hook=_once)",
        "(parse_int=str, parse_float=str, parse_constant=_constant)",
        ("tests/unit/journal/test_rows.py::test_json_refuses_texts_that_are_none",),
    ),
    Mutant(
        "a quote that is not closed takes the rest of the file",
        "spark_queue/cli/csv_rows.py", "    if end < len(last):\n", "    if end > len(last):\n",
        ("tests/unit/cli/test_csv_rows.py",),
    ),
    Mutant(
        "a sequence number may leave too few for its rows",
        f"{_JOURNAL}/publisher.py", "first <= 2**_BITS - row_count)", "first < 2**_BITS)",
        ("tests/unit/client/test_publish_arguments.py",),
    ),
    Mutant(
        "one value that cannot be shown hides all messages that are found",
        f"{_VIEWS}/message_search.py", "    return python_rows(found), None\n", "    return found.to_pylist(), None\n", _FAR,
    ),
    Mutant(
        "whole numbers lose digits in pandas",
        f"{_VIEWS}/tables.py", "if column.null_count]\n    columns", "if not column.null_count]\n    columns", _FAR,
    ),
)  # fmt: skip
