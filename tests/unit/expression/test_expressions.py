"""What expressions are refused for, what becomes of their values, and that no message disturbs another."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import md5
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_queue.errors import ConfigError
from spark_queue.expression import BARRIER, FILTER, ORDER_KEY, PRIORITY, Found, Wanted, program
from spark_queue.expression.functions import FUNCTIONS
from spark_queue.expression.program import Program, translate
from tests.acceptance.expression_table import AGREED, COLUMNS, REFUSED, SCHEMA

TABLE = pa.table(COLUMNS, schema=SCHEMA)


def run(text: str, purpose: str, rows: pa.Table = TABLE) -> Found:
    wanted = Wanted(text, purpose)
    return translate((wanted,), SCHEMA if rows is TABLE else rows.schema).run(rows)[wanted]


def numbers(text: str, purpose: str, rows: pa.Table = TABLE) -> list[int | None]:
    found = run(text, purpose, rows)
    return [int(value) if valid else None for value, valid in zip(found.values, found.valid, strict=True)]


@pytest.mark.parametrize("text", REFUSED)
def test_what_might_differ_from_spark_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\[EXPRESSION_(INVALID|UNSUPPORTED)\]") as refusal:
        translate((Wanted(text, FILTER),), pa.schema([*SCHEMA, pa.field("expires_at", pa.timestamp("us", tz="UTC"))]))
    assert REFUSED[text] in str(refusal.value)
    assert refusal.value.facts["next_step"]


def test_nothing_but_the_error_tells_of_a_bad_pattern(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="not a regular expression"):
        run("word RLIKE '(a'", FILTER)
    assert capfd.readouterr().err == ""


def test_a_refusal_names_the_place() -> None:
    with pytest.raises(ConfigError, match="wrong at character 11: there is no column 'nn'"):
        run("n > 1 AND nn = 2", FILTER)


@pytest.mark.parametrize(
    ("text", "purpose", "reason"),
    [
        ("n", FILTER, "it gives INT. A filter must be true or false"),
        ("word", BARRIER, "it gives STRING"),
        ("day", PRIORITY, "A priority is a number"),
        ("NULL", PRIORITY, "A priority is a number"),
        ("x", ORDER_KEY, "no stable text"),
        ("tags", ORDER_KEY, "no stable text"),
    ],
)
def test_each_purpose_has_its_types(text: str, purpose: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="EXPRESSION_") as refusal:
        run(text, purpose)
    assert reason in str(refusal.value)


def test_a_filter_that_is_null_or_fails_does_not_match() -> None:
    found = run("10 / n > 1", FILTER)
    assert found.values.tolist() == [True, False, False, False, True, False, False, True, True, False, False, False]
    assert np.flatnonzero(found.failed).tolist() == [1]


#: Rows by which it is told what is evaluated: `n` decides, `1 / zero` fails in all of them.
_DECIDING = pa.table({
    "n": pa.array([1, -1, None], pa.int32()), "zero": pa.array([0, 0, 0], pa.int32()), "low": pa.array([-(2**31)] * 3, pa.int32()),
    "word": pa.array(["x", "1", None]), "tags": pa.array([["a"]] * 3, pa.list_(pa.string())),
})  # fmt: skip
_ALL, _NONE = [True] * 3, [False] * 3


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        # A condition that is NULL is not true: what stands after it is evaluated, and fails.
        ("CASE WHEN n > 0 THEN true ELSE 1 / zero > 0 END", [False, True, True]),
        ("CASE WHEN n > 0 THEN 1 / zero > 0 ELSE true END", [True, False, False]),
        ("CASE WHEN n > 0 THEN true WHEN 1 / zero > 0 THEN true END", [False, True, True]),
        ("CASE WHEN 1 / zero > 0 THEN true ELSE true END", _ALL),
        ("if(n > 0, true, 1 / zero > 0)", [False, True, True]),
        ("coalesce(n > 0, 1 / zero > 0)", [False, False, True]),
        ("n > 0 AND 1 / zero > 0", [True, False, True]),
        ("n > 0 OR 1 / zero > 0", [False, True, True]),
        ("1 / zero > 0 AND n > 0", _ALL),
        ("1 / zero > 0 OR n > 0", _ALL),
        # Most functions look at no argument after one that is NULL; these look at all.
        ("n = 1 / zero", [True, True, False]),
        ("1 / zero = n", _ALL),
        ("n <=> 1 div zero", _ALL),
        ("1 div zero <=> n", _ALL),
        ("greatest(1D, 1 / zero) > 0", _ALL),
        ("least(1 / zero, 1D) > 0", _ALL),
        ("concat(word, if(1 / zero > 0, 'a', 'b')) = 'a'", _ALL),
        ("concat(if(1 / zero > 0, 'a', 'b'), word) = 'a'", _ALL),
        ("isnull(1 / zero)", _ALL),
        ("isnan(1 / zero)", _ALL),
        ("nullif(1 / zero, 1D) > 0", _ALL),
        # What fails by itself.
        ("abs(low) > 0", _ALL),
        ("-low > 0", _ALL),
        ("low + low > 0", _ALL),
        ("CAST(word AS INT) > 0", [True, False, False]),
        ("CAST(word AS INT) > 0.5D", [True, False, False]),
        ("tags[n] = 'a'", [True, True, False]),
        ("element_at(tags, n) = 'a'", _NONE),
        ("element_at(tags, 2) = 'a'", _ALL),
        ("element_at(tags, 1 div zero) = 'a'", _ALL),
    ],
)
def test_what_is_not_evaluated_does_not_fail_and_what_is_does(text: str, failed: list[bool]) -> None:
    assert run(text, FILTER, _DECIDING).failed.tolist() == failed


def test_an_element_that_may_hide_behind_a_null_is_neither_there_nor_missing() -> None:
    rows = pa.table({"tags": pa.array([["a", None], ["a"], ["z", None]], pa.list_(pa.string()))})
    assert run("array_contains(tags, 'z') IS NULL", FILTER, rows).values.tolist() == [True, False, False]


def test_a_timestamp_with_an_offset_is_that_instant() -> None:
    rows = pa.table({"at": pa.array([datetime(2024, 1, 31, 10, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))})
    assert run("at = TIMESTAMP '2024-01-31 12:00:00+02:00'", FILTER, rows).values.tolist() == [True]


def test_r66_a_priority_is_unsigned_and_what_is_no_number_has_none() -> None:
    assert numbers("big", PRIORITY)[:7] == [1, 0, None, None, 2**63 - 1, None, 2**31]
    assert numbers("x", PRIORITY)[:9] == [1, 0, None, 0, None, 2**64 - 1, None, 2, None]
    assert numbers("price", PRIORITY)[:6] == [1, 0, None, 9999999999, None, 2]
    assert numbers("number", PRIORITY) == [1, 42, None, None, None, 5, 1, None, 2147483648, 100, None, None]
    assert numbers("10 / n", PRIORITY)[:2] == [10, None]
    assert numbers("99999999999999999999", PRIORITY)[0] == 2**64 - 1


def test_equal_order_keys_have_equal_hashes_that_never_change() -> None:
    keys = numbers("topic", ORDER_KEY)
    assert keys[0] == keys[2] != keys[1]
    assert numbers("word", ORDER_KEY)[2] is None
    # What is stored of granted messages rests on these.
    assert numbers("topic", ORDER_KEY, pa.table({"topic": ["A"]}))[0] == int.from_bytes(md5(b"A").digest()[8:], "little")
    assert numbers("at", ORDER_KEY)[1] == numbers("CAST(at AS BIGINT)", ORDER_KEY)[1] == numbers("0", ORDER_KEY)[1]


def test_a_column_that_a_file_does_not_have_is_null() -> None:
    wanted = Wanted("n IS NULL AND topic = 'A'", FILTER)
    assert translate((wanted,), SCHEMA).run(pa.table({"topic": ["A", "B"]}))[wanted].values.tolist() == [True, False]


def test_several_expressions_share_what_they_compute() -> None:
    one, other = Wanted("get_json_object(value, '$.a') = '1'", FILTER), Wanted("get_json_object(value, '$.a')", PRIORITY)
    both = translate((one, other), SCHEMA)
    assert both._query.count("json_extract_string") == 1
    assert both.columns == ("value",)
    found = both.run(TABLE)
    assert found[one].values.tolist() == run(*one).values.tolist()
    assert found[other].values.tolist() == run(*other).values.tolist()


def test_every_function_is_compared_with_spark() -> None:
    assert [name for name in FUNCTIONS if not any(f"{name}(" in text for text in AGREED)] == []


def test_a_row_on_which_the_engine_fails_by_surprise_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Program._run

    def surprised(self: Program, rows: pa.Table) -> pa.Table:
        if len(rows) and "poison" in rows.column("word").to_pylist() and "word" in self.columns:
            raise duckdb.OutOfRangeException("surprise")
        return real(self, rows)

    monkeypatch.setattr(Program, "_run", surprised)
    rows = pa.table({"word": ["a", "b", "poison", "a"], "n": [1, 2, 3, 4]})
    of_word, of_number = Wanted("word = 'a'", FILTER), Wanted("n > 2", FILTER)
    found = translate((of_word, of_number), rows.schema).run(rows)
    assert found[of_word].values.tolist() == [True, False, False, True]
    assert found[of_word].failed.tolist() == [False, False, True, False]
    assert found[of_number].values.tolist() == [False, False, True, True]


def _longer(text: str, times: int) -> str:
    for _ in range(times):
        text = f"replace({text}, 'a', '{'a' * 10}')"
    return text


@pytest.mark.parametrize(
    "text",
    [_longer("value", 12), _longer("if(startswith(value, 'a'), upper(value), 'aaaa')", 12), _longer("value || value", 12),
     _longer("'a'", 12)],
    ids=["replacements", "through a choice", "joined", "of a literal"],
)  # fmt: skip
def test_an_expression_that_makes_a_message_too_long_fails_on_it_and_takes_no_memory(text: str) -> None:
    """One message of one character would fill any memory: who may begin a subscription must not end the coordinator so."""
    found = run(f"length({text}) > 3", FILTER, pa.table({"value": ["a", "b"]}))
    assert found.failed.tolist() == [True, True]


def test_messages_that_become_long_are_evaluated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_queue.expression.program.MEMORY_MOST_BYTES", 100_000)
    rows = pa.table({"value": ["a" * 10, "b", "a" * 100, "a" * 1_000]})
    found = run(f"length({_longer('value', 2)}) > 100", FILTER, rows)
    assert found.values.tolist() == [True, False, True, False]
    assert found.failed.tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("value", "by", "failed"),
    [("abc", "xyz", False), ("a" * 100, "x" * 17, False), ("a" * 100, "x" * 18, True), ("a" * 100, "ü" * 9, True)],
)
def test_what_a_column_replaces_does_not_grow_with_the_square_of_a_message(value: str, by: str, *, failed: bool) -> None:
    """What is put in is at most 15 times as long as both texts, in bytes: 1,700 of 1,755 bytes, and 1,800 of 1,770."""
    found = run("replace(value, 'a', other) <> ''", FILTER, pa.table({"value": [value], "other": [by]}))
    assert (found.values.tolist(), found.failed.tolist()) == ([not failed], [failed])


def test_a_large_piece_is_shared_out_and_comes_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = Program._run, []

    def surprised(self: Program, rows: pa.Table) -> pa.Table:
        asked.append(len(rows))
        if 17 in rows.column("n").to_pylist():
            raise duckdb.OutOfRangeException("surprise")
        return real(self, rows)

    wanted = Wanted("n % 3 = 0", FILTER)
    pieces = [pa.table({"n": list(range(first, until))}) for first, until in ((0, 40), (40, 43), (43, 43))]
    asked_of = translate((wanted,), pieces[0].schema)
    monkeypatch.setattr(program, "WORKERS", 4)
    monkeypatch.setattr(program, "SHARE_ROWS_MIN", 8)
    monkeypatch.setattr(Program, "_run", surprised)
    found = asked_of.run_over(pieces)[wanted]
    assert found.values.tolist() == [number % 3 == 0 and number != 17 for number in range(43)]
    assert np.flatnonzero(found.failed).tolist() == [17]
    assert sorted(asked)[-4:] == [10, 10, 10, 10]


#: Expressions that fail on some of the rows below, in every way that there is.
_FRAGILE = (
    Wanted("CAST(get_json_object(value, '$.a') AS INT) > 3", FILTER),
    Wanted("CAST(get_json_object(value, '$.a') AS INT) * 1000000000", PRIORITY),
    Wanted("10 % n + big", PRIORITY),
    Wanted("CAST(x AS BIGINT)", ORDER_KEY),
    Wanted("upper(value) RLIKE '^[A-Z]+$' OR n = 0", BARRIER),
    Wanted("1 / n > 0 AND CAST(value AS DOUBLE) > 0", FILTER),
)
_ROW = st.fixed_dictionaries(
    {
        "value": st.one_of(
            st.none(), st.text(), st.sampled_from(['{"a": 5}', '{"a": "x"}', '{"a": 9999999999}', "{", '{"a"', "7", "NaN"])
        ),
        "n": st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1)),
        "big": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "x": st.one_of(st.none(), st.floats()),
    }
)
_SCHEMA = pa.schema([(name, SCHEMA.field(name).type) for name in ("value", "n", "big", "x")])


@settings(max_examples=60)
@given(st.lists(_ROW, min_size=1, max_size=6))
def test_a_poison_row_never_changes_what_its_neighbours_give(rows: list[dict[str, Any]]) -> None:
    program = translate(_FRAGILE, _SCHEMA)
    together = program.run(pa.Table.from_pylist(rows, schema=_SCHEMA))
    for number, row in enumerate(rows):
        alone = program.run(pa.Table.from_pylist([row], schema=_SCHEMA))
        for wanted in _FRAGILE:
            of_all, of_one = together[wanted], alone[wanted]
            assert (of_all.valid[number], of_all.failed[number]) == (of_one.valid[0], of_one.failed[0])
            assert not of_all.valid[number] or of_all.values[number] == of_one.values[0]
