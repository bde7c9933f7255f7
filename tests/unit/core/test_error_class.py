"""What errors of one class have in common: ids, numbers, times and quoted values are folded, words are not."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from spark_queue.core.state.dead_letter import DeadLetter
from spark_queue.core.state.letter_kinds import error_class, letter_kinds

#: Words as errors have them; none is a number in hexadecimal.
WORD = st.text("ghijklmnopqrstuvwxyz", min_size=1, max_size=8)

#: What stands between them in an error, and differs from message to message.
VARYING = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(0).map("{:,}".format),
    st.uuids().map(str),
    st.uuids().map(lambda each: each.hex),
    st.integers(0, 2**64).map(hex),
    st.datetimes().map(lambda each: each.isoformat()),
    st.datetimes(timezones=st.just(UTC)).map(lambda each: each.isoformat(timespec="milliseconds")),
    st.ip_addresses(v=4).map(str),
    st.text(max_size=40).map(repr),
    st.text(st.characters(exclude_characters='"\\'), max_size=40).map('"{}"'.format),
    st.integers(0).map("order-{}-eu".format),
)


def told(words: list[str], values: list[str]) -> str:
    """Return an error's text: a value after each word."""
    return " ".join(f"{word}: {value}" for word, value in zip(words, values, strict=True))


@given(st.lists(st.tuples(WORD, VARYING, VARYING), min_size=1, max_size=5))
def test_errors_that_differ_in_values_alone_are_of_one_class(parts: list[tuple[str, str, str]]) -> None:
    words, ones, others = map(list, zip(*parts, strict=True))
    expected = told(words, ["…"] * len(words))
    assert {error_class(told(words, ones)), error_class(told(words, others))} == {expected}


@given(st.lists(st.tuples(WORD, WORD, VARYING), min_size=1, max_size=5))
def test_errors_that_differ_in_a_word_are_of_two_classes(parts: list[tuple[str, str, str]]) -> None:
    ones, others, values = map(list, zip(*parts, strict=True))
    assert (error_class(told(ones, values)) == error_class(told(others, values))) == (ones == others)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("KeyError: order 12345", "KeyError: order …"),
        ("can't open the users' file 'a b', it's gone", "can't open the users' file …, it's gone"),
        (r'ValueError: "a \"b\" c" in `q`', "ValueError: … in …"),
        ("deadbeefcafe added to 0xfeed", "… added to …"),
        ("timeout after 30 s at ledger.example:443", "timeout after … s at ledger.example:…"),
        ("", ""),
    ],
)
def test_a_class_reads_as_its_errors_do(error: str, expected: str) -> None:
    assert error_class(error) == expected


def letters_of(*errors: str | None) -> list[DeadLetter]:
    """Return dead letters, one of each error, a second apart."""
    return [
        DeadLetter(
            rows=BitMap64([row]), reason="forced_expire", error=error, deliveries=1, cancels=0, removed_at_ms=1_000 * row
        )
        for row, error in enumerate(errors)
    ]  # fmt: skip


def test_ten_thousand_letters_with_ids_are_of_one_kind() -> None:
    ids = uuid.UUID(int=7), datetime(2026, 1, 28, 10, tzinfo=UTC)
    letters = letters_of(*(f"KeyError: order {row} of {ids[0]} at {ids[1]}" for row in range(10_000)))
    (kind,) = letter_kinds(letters)
    assert (kind.error, len(kind.rows)) == ("KeyError: order … of … at … …", 10_000)
    assert (kind.first_ms, kind.last_ms) == (0, 9_999_000)
    assert kind.errors_of(BitMap64([3, 4])) == [letters[3].error, letters[4].error]


def test_a_kind_of_one_text_keeps_that_text_and_none_is_a_kind_of_its_own() -> None:
    found = letter_kinds(letters_of("declined: 402", None, "declined: 402", "bad row 1", "bad row 2"))
    assert [(kind.error, list(kind.rows)) for kind in found] == [("bad row …", [3, 4]), ("declined: 402", [0, 2]), (None, [1])]
