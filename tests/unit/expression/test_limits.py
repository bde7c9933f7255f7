"""That every text is translated or refused by name, however long or deep it is, and that both are the same wherever it is asked."""

from __future__ import annotations

import sys
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_queue.errors import ConfigError
from spark_queue.expression import FILTER, ORDER_KEY, PRIORITY, Found, Wanted, program
from spark_queue.expression.functions import FUNCTIONS
from spark_queue.expression.program import Program, translate

_FIELDS: list[pa.Field[Any]] = [
    pa.field("n", pa.int64()), pa.field("body", pa.string()), pa.field("r", pa.list_(pa.string())),
    pa.field("d", pa.decimal128(9, 2)),
    pa.field("s", pa.struct([pa.field("x y", pa.int32()), pa.field("z", pa.string())])), pa.field("order no", pa.int64()),
    pa.field("m", pa.map_(pa.string(), pa.int32())), pa.field("at", pa.timestamp("us", tz="UTC")),
    pa.field("a`b{0}\"c", pa.int64()),
]  # fmt: skip
COLUMNS = pa.schema(_FIELDS)
ROWS = pa.table(
    {
        "n": [1, 0, None],
        "body": ['{"a b": "5"}', "x", None],
        "order no": [7, 8, 9],
        'a`b{0}"c': [1, 2, 3],
        "s": [{"x y": 4, "z": "q"}] * 3,
    },
    schema=pa.schema([COLUMNS.field(name) for name in ("n", "body", "order no", 'a`b{0}"c', "s")]),
)  # fmt: skip


def run(text: str) -> Found:
    wanted = Wanted(text, FILTER)
    return translate((wanted,), COLUMNS).run(ROWS)[wanted]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("n > 1e", "1e is no number"),
        ("n > 1e3.1", "1e3.1 is no number"),
        ("n > 1e999", "1e999 is too large for a DOUBLE"),
        ("n > -1e999", "too large for a DOUBLE"),
        ("n = " + "1" * 5_000, "has too many digits"),
        ("n = 0." + "1" * 5_000, "has too many digits"),
        ("CAST(n AS DECIMAL(p,s)) > 1", "DECIMAL(P,S) is no type"),
        ("CAST(n AS DECIMAL(x,1)) > 1", "DECIMAL(X,1) is no type"),
        ("CAST(n AS DECIMAL(10.2)) > 1", "DECIMAL(10.2) is no type"),
        ("CAST(n AS DECIMAL('a')) > 1", "is no type"),
        (f"CAST(n AS DECIMAL({'1' * 5_000})) > 1", "is no type"),
        ("at > TIMESTAMP '0001-01-01 00:00:00+14:00'", "is no TIMESTAMP"),
        ("at > TIMESTAMP '9999-12-31 23:59:59-14:00'", "is no TIMESTAMP"),
        ("body = '\ud800'", "cannot encode str"),
        ("n " * 6_000, "longer than 10,000 characters"),
        ("(" * 41 + "n > 1" + ")" * 41, "nests too deeply"),
        ("(" * 4_000, "nests too deeply"),
        ("[" * 9_000, "nests too deeply"),
        ("CASE WHEN n > 1 THEN " * 300 + "true" + " END" * 300, "nests too deeply"),
        ("CAST(n AS " + "ARRAY<" * 900 + "INT" + ">" * 900 + ") = 1", "nests too deeply"),
        ("NOT " * 2_000 + "n > 1", "nests too deeply"),
        ("n" + " + n" * 250 + " > 1", "nests too deeply"),
        ("body" + "::STRING" * 480 + " <> 'zz'", "nests too deeply"),
        ("s" + ".x" * 2_000 + " = 1", "nests too deeply"),
        ("n" + " IS NULL" * 1_000, "nests too deeply"),
        ("n IN (" + ",".join(map(str, range(2_010))) + ")", "too long"),
        ("'" * 9_999, "a quote or parenthesis is left open"),
        ("/*" * 4_000, "a quote or parenthesis is left open"),
    ],
)  # fmt: skip
def test_what_cannot_be_translated_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=r"^\[EXPRESSION_(INVALID|UNSUPPORTED)\]") as refusal:
        run(text)
    assert reason in refusal.value.facts["reason"]
    assert refusal.value.facts["next_step"]
    assert len(str(refusal.value)) < 2_000


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("(" * 40 + "n = 1" + ")" * 40, [True, False, False]),
        ("lower(" * 40 + "body" + ")" * 40 + " = 'x'", [False, True, False]),
        ("n" + " + n" * 150 + " = 151", [True, False, False]),
        (" AND ".join(f"n <> {number}" for number in range(1, 601)), [False, True, False]),
        (" OR ".join(f"n = {number}" for number in range(1, 901)), [True, False, False]),
        ("n IN (" + ",".join(map(str, range(1, 601))) + ")", [True, False, False]),
        ("CASE " + "WHEN n = 0 THEN true " * 400 + "END", [False, True, False]),
    ],
)
def test_what_is_long_and_not_deep_is_evaluated(text: str, matching: list[bool]) -> None:
    assert run(text).values.tolist() == matching


def test_conditions_side_by_side_are_no_level_each() -> None:
    """How long DuckDB plans, for every commit that enters, grows with the columns of all levels."""
    wanted = Wanted("n IN (" + ",".join(map(str, range(500))) + ")", FILTER)
    assert translate((wanted,), COLUMNS)._query.count("FROM (") < 6


def test_a_level_hands_on_only_what_is_needed_later() -> None:
    text = "n" + " + n" * 100 + " > 1 AND body <> 'a' AND body <> 'b'"
    query = translate((Wanted(text, FILTER),), COLUMNS)._query
    assert max(level.count(",") for level in query.split("FROM (")) < 10


def _from_depth(frames: int, text: str) -> str:
    if frames:
        return _from_depth(frames - 1, text)
    try:
        run(text)
    except ConfigError as refusal:
        return str(refusal)
    return "accepted"


@pytest.mark.parametrize("text", ["(" * 40 + "n > 2" + ")" * 40, "n" + " - n" * 190 + " > 2", "NOT " * 120 + "n > 2"])
def test_what_is_accepted_does_not_depend_on_how_deep_its_caller_stands(text: str) -> None:
    """One that is accepted at one place must not be refused at another: a coordinator that recovers stands deeper, or less deep."""
    program._translated.cache_clear()
    deep = _from_depth(sys.getrecursionlimit() - 150, text)
    program._translated.cache_clear()
    assert deep == _from_depth(0, text)


def test_a_text_that_is_no_utf8_fails_its_own_row_only() -> None:
    """DuckDB ends on one, for good: expressions of all other message types would fail from then on."""
    texts: pa.Array[Any] = pa.array([b"X", b"\xff" * 40, None], pa.binary()).view(pa.string())
    wanted, other = Wanted("lower(body) = 'x'", FILTER), Wanted("upper(body) = 'X'", FILTER)
    engine = program._engine()
    found = translate((wanted, other), COLUMNS).run(ROWS.select(["n"]).append_column("body", texts))
    assert program._engine() is engine, "it has never met it"
    for each in (wanted, other):
        assert (found[each].values.tolist(), found[each].failed.tolist()) == ([True, False, False], [False, True, False])
    assert run("upper(body) = 'X'").values.tolist() == [False, True, False]


def test_an_engine_that_has_ended_is_replaced() -> None:
    texts: pa.Array[Any] = pa.array([b"\xff" * 40], pa.binary()).view(pa.string())
    cursor = program._engine().cursor().register("rows", pa.table({"body": texts}))
    with pytest.raises(duckdb.Error):
        cursor.execute("SELECT lower(body) FROM rows")
    with pytest.raises(duckdb.FatalException):
        program._engine().execute("SELECT 1")
    assert run("upper(body) = 'X'").values.tolist() == [False, True, False]
    assert program._engine().execute("SELECT 1").fetchall() == [(1,)]


def test_what_failed_for_want_of_memory_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (Wanted("n > 77", FILTER),)

    def short(self: Program, rows: pa.Table) -> pa.Table:
        raise duckdb.OutOfMemoryException("no more")

    with monkeypatch.context() as patched:
        patched.setattr(Program, "_run", short)
        with pytest.raises(ConfigError, match="OutOfMemoryException: no more"):
            translate(wanted, COLUMNS)
    assert translate(wanted, COLUMNS).columns == ("n",)


def test_a_row_for_which_memory_is_short_is_no_row_that_the_expression_fails_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host may have the memory, and would find something else."""
    wanted = (Wanted("n > 1", FILTER), Wanted("concat(body, 'q') LIKE '%q'", FILTER))
    found, answered = translate(wanted, COLUMNS), Program._answered

    def short(self: Program, engine: duckdb.DuckDBPyConnection, table: pa.Table) -> pa.Table:
        if "body" in self.columns and len(table):
            raise duckdb.OutOfMemoryException("no more")
        return answered(self, engine, table)

    monkeypatch.setattr(Program, "_answered", short)
    with pytest.raises(MemoryError, match="concat.*no more"):
        found.run(ROWS)


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("`order no` > 7", [False, True, True]),
        ("`ORDER NO` > 7", [False, True, True]),
        ("s.`x y` = 4", [True, True, True]),
        ("`s`.`x y` = 4", [True, True, True]),
        ('`a``b{0}"c` = 2', [False, True, False]),
        ("get_json_object(body, '$.a b') = '5'", [True, False, False]),
        ("get_json_object(body, '$[\\'a b\\']') = '5'", [True, False, False]),
        ("get_json_object(body, \"$['a b']\") = '5'", [True, False, False]),
    ],
)
def test_names_with_blanks_are_names(text: str, matching: list[bool]) -> None:
    assert run(text).values.tolist() == matching


_WORDS = st.sampled_from([
    *("n body r d s m at `order no` s.z r[0] m['k'] nothing".split(" ")),
    *"+ - * / % || = == <> != < <= > >= <=> ! ~ & | ^ :: . , ; : ? @ # $ { } \\ -> =>".split(),
    *"( ( ( ) ) ) [ ] AND OR NOT IS NULL TRUE FALSE IN LIKE RLIKE BETWEEN DISTINCT FROM CASE WHEN THEN ELSE END AS ESCAPE".split(),
    *"CAST( TRY_CAST( DECIMAL( DECIMAL INT STRING DATE TIMESTAMP INTERVAL ARRAY< MAP< STRUCT< SELECT EXISTS OVER COLLATE".split(),
    *"0 1 -1 1e 1e3 1e3.1 1e999 1.5D 1L 99Y 0x1F 1.1.1 .5 5. 9223372036854775808 '' 'a' '2024-01-31' \"q\"".split(),
    *"r'\\d' X'1F' /* */ -- count( rand( '[a-z]+('".split(), *(f"{name}(" for name in FUNCTIONS),
    "1" * 400, "(" * 50, "x -> ", "é", "\0", "\u202e", "\ud800",
])  # fmt: skip
_SOUP = st.one_of(
    st.lists(_WORDS, max_size=14).map(" ".join), st.lists(_WORDS, max_size=8).map("".join), st.text(max_size=30),
    st.builds(lambda word, times: f"{word} " * times, _WORDS, st.integers(1, 900)),
)  # fmt: skip


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(_SOUP, st.sampled_from([FILTER, PRIORITY, ORDER_KEY]))
def test_any_text_is_translated_or_refused_by_name(text: str, purpose: str) -> None:
    try:
        asked = translate((Wanted(text, purpose),), COLUMNS)
    except ConfigError:
        return
    assert all(len(each.values) == len(ROWS) for each in asked.run(ROWS).values())
