"""Footers of a peer's Parquet files that say what cannot be: refused by name, and the process lives (DESIGN 17.3)."""

from __future__ import annotations

import copy
import multiprocessing
import os
import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_queue.replication.bounded_files import BoundedFile
from spark_queue.replication.peer_log import DAMAGE
from tests.unit.replication.attack import Attack, Home
from tests.unit.replication.footers import Value, change_footer

#: How many footers are changed of each file; `make nightly` asks for more.
FUZZED_FOOTERS = int(os.environ.get("FUZZED_FOOTERS", "400"))

#: How long reading all of them may take, in seconds, and what it may add to the memory of a process, in bytes.
_DEADLINE_S = 120
_MEMORY_BYTES = 1_000_000_000

#: Types of the protocol, and fields of a footer, of its row groups and of its columns.
_I32, _BINARY, _LIST, _STRUCT = 5, 8, 9, 12
_SCHEMA, _ROWS, _GROUPS, _ORDERS = 2, 3, 4, 7
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS = 1, 2, 3
_META, _VALUES, _OFFSET = 3, 5, 11
_CHILDREN = 5

EDGES = (-(2**63), -(2**31), -1, 0, 1, 2, 7, 100, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1)


def _group(footer: Value) -> Value:
    return footer[_GROUPS][0]


def _meta(footer: Value) -> Value:
    return _group(footer)[_COLUMNS][0][_META]


def _set(of: Callable[[Value], Value], field: int, number: int) -> Callable[[Value], None]:
    def change(footer: Value) -> None:
        of(footer)[field].value = number

    return change


def _many_groups(footer: Value) -> None:
    footer[_GROUPS].value *= 5_000


def _long(footer: Value) -> None:
    footer[_SCHEMA][0].value[4] = Value(_BINARY, b"x" * 20_000_000)


def _columns(footer: Value, added: list[Value]) -> None:
    """Add columns that have all that a column needs."""
    footer[_SCHEMA][0][_CHILDREN].value += 1
    footer[_SCHEMA].value += added
    for group in footer[_GROUPS].value:
        group[_COLUMNS].value.append(copy.deepcopy(group[_COLUMNS][0]))
    footer[_ORDERS].value.append(footer[_ORDERS][0])


def _named(name: str, children: int | None = None) -> Value:
    fields = {3: Value(_I32, 1), 4: Value(_BINARY, name.encode())}
    return Value(_STRUCT, fields | ({1: Value(_I32, 1)} if children is None else {_CHILDREN: Value(_I32, children)}))


def _many_columns(footer: Value) -> None:
    for number in range(10_000):
        _columns(footer, [_named(f"c{number}")])
    # Columns that nobody reads would do no harm.
    footer[_ROWS].value = 7


def _deep(footer: Value) -> None:
    _columns(footer, [*(_named("x", 1) for _ in range(1_000)), _named("leaf")])


FOOTERS: dict[str, tuple[Callable[[Value], None], str]] = {
    "2^31 rows": (_set(lambda footer: footer, _ROWS, 2**31), "no 2147483648 rows together"),
    "rows below 0": (_set(lambda footer: footer, _ROWS, -1), "no -1 rows together"),
    "a group of 2^31 rows": (_set(_group, _GROUP_ROWS, 2**31), "a row group of it has 2147483648 rows"),
    "a group of rows below 0": (_set(_group, _GROUP_ROWS, -5), "a row group of it has -5 rows"),
    "a group of 2^62 bytes": (_set(_group, _GROUP_BYTES, 2**62), "a row group of it has 4611686018427387904 bytes"),
    "a group of bytes below 0": (_set(_group, _GROUP_BYTES, -1), "a row group of it has -1 bytes"),
    "no values": (_set(_meta, _VALUES, 0), "file"),
    "an offset below 0": (_set(_meta, _OFFSET, -1), "file"),
    "an offset behind its end": (_set(_meta, _OFFSET, 2**40), "file"),
    "no columns in its group": (lambda footer: _group(footer)[_COLUMNS].value.clear(), "file"),
    "thousands of row groups": (_many_groups, "no 2 rows together"),
    "ten thousand columns": (_many_columns, "it has 10007 columns, and 5000 are the most"),
    "a schema of a thousand levels": (_deep, "too deeply nested"),
    "a footer of 20 MB": (_long, "its footer has"),
}


@pytest.mark.parametrize("case", FOOTERS)
def test_a_footer_that_says_what_cannot_be_is_refused(home: Home, tmp_path: Path, case: str) -> None:
    attack, (change, says) = Attack(home, tmp_path), FOOTERS[case]
    file = attack.peer.message_file(attack.peer.number("entered", rows=2, message_type="order"))
    file.write_bytes(change_footer(file.read_bytes(), change))
    attack.pull("PEER_REFUSED", says)
    attack.heal()


def _changed_at_random(seed: int) -> Callable[[Value], None]:
    """Return a change of one thing in a footer, or of some, as a seed says."""
    chance = random.Random(seed)

    def change(footer: Value) -> None:
        for _ in range(chance.choice([1, 1, 1, 2, 4])):
            value = chance.choice([*_all(footer)])
            match value.value:
                case int():
                    value.value = chance.choice((-1, 0, 1, 127) if value.kind == 3 else EDGES)
                case bytes():
                    value.value = chance.choice([b"", 2 * value.value, b"\xff\xfe", b"x" * 100_000, chance.randbytes(8)])
                case list() if value.value:
                    kept = chance.sample(value.value, chance.randrange(len(value.value)))
                    value.value = chance.choice([kept, 2 * value.value, 1_000 * value.value])
                case dict() if value.value:
                    moved = value.value.pop(chance.choice([*value.value]))
                    value.value |= chance.choice([{}, {chance.choice([1, 2, 3, 4, 5, 9, 12]): moved}])

    return change


def _all(value: Value) -> Iterator[Value]:
    yield value
    for part in value.value.values() if isinstance(value.value, dict) else value.value if isinstance(value.value, list) else ():
        yield from _all(part)


def _read_all(file: Path, reached: Any) -> None:
    """Read a file with one footer after the other; what it raises must be what whoever pulls refuses."""
    honest = file.read_bytes()
    names = pq.read_schema(file).names
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(FUZZED_FOOTERS):
        changed = change_footer(honest, _changed_at_random(seed))
        reached.value = seed
        try:
            found = BoundedFile(pa.BufferReader(changed), names)
            for part in found.parts(0, found.row_count, most_rows=1_024):
                part.validate(full=True)
        except DAMAGE:
            continue
        except OSError as failure:
            # One with a number would count as a store that fails, and be tried for ever.
            if failure.errno is not None:
                raise
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < _MEMORY_BYTES


@pytest.mark.parametrize("kind", ["messages", "records"])
def test_no_footer_ends_the_process(home: Home, kind: str) -> None:
    place = home[0] / "virginia"
    file = max(
        (place / ("control" if kind == "records" else "messages/order")).glob("*.parquet"), key=lambda each: each.stat().st_size
    )
    # Another process, which pyarrow may end.
    context = multiprocessing.get_context("spawn")
    reached = context.Value("q", -1)
    reader = context.Process(target=_read_all, args=(file, reached))
    reader.start()
    reader.join(_DEADLINE_S)
    reader.kill()
    reader.join()
    assert (reader.exitcode, reached.value) == (0, FUZZED_FOOTERS - 1), "that exit code, at that seed"
