"""Telling callers by their tokens, and slowing those whose token nobody has (R12)."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from spark_queue.coordinator import logins as module
from spark_queue.coordinator.logins import ADDRESSES_MAX, LONGEST_DELAY_S, CallerTokens, address_of
from spark_queue.core.definitions import parsing
from spark_queue.core.definitions.definition import Definitions
from spark_queue.protocol.tokens import TOKEN_PREFIX, new_token, token_hash


def definitions(**hashes: Any) -> Definitions:
    rights = [{"rights": ["administer"]}]
    return parsing.parse({"principals": {name: {"token_hash": given, "rights": rights} for name, given in hashes.items()}})


def bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def logins(waits: list[float]) -> CallerTokens:
    return CallerTokens("own", pause=waits.append)


def test_a_token_is_random_found_by_its_beginning_and_stored_as_a_hash_of_ours() -> None:
    one, other = new_token(), new_token()
    assert one != other
    assert one.startswith(TOKEN_PREFIX)
    assert len(one) >= len(TOKEN_PREFIX) + 43
    assert token_hash(one) != token_hash(other)
    assert token_hash("x") == "295115c175535cb8db11672671b1b5158b297bc2b29f6eade287708a525fa06d"


def test_tokens_tell_principals_and_change_without_a_restart(logins: CallerTokens) -> None:
    first, second = new_token(), new_token()
    now = [definitions(ops=token_hash(first))]
    logins.know(lambda: now[0])
    assert logins.principal_of(bearer(first)) == ("ops", token_hash(first))
    assert logins.principal_of(bearer(second)) is None
    # While one takes the place of the other, both are good.
    now[0] = definitions(ops=[token_hash(first), token_hash(second)])
    for each in (first, second):
        assert logins.principal_of(bearer(each)) == ("ops", token_hash(each))
    now[0] = definitions(ops=token_hash(second))
    assert logins.principal_of(bearer(first)) is None


def test_the_hash_of_a_token_is_no_token(logins: CallerTokens) -> None:
    """Who reads the definitions cannot call."""
    token = new_token()
    logins.know(lambda: definitions(ops=token_hash(token)))
    assert logins.principal_of(bearer(token_hash(token))) is None
    assert logins.principal_of(b"") is None
    assert logins.principal_of(b"Bearer \xff\xfe") is None


@pytest.mark.parametrize("scheme", [b"bearer ", b"BEARER ", b"Bearer  "])
def test_the_scheme_has_any_case_of_letters(logins: CallerTokens, scheme: bytes) -> None:
    token = new_token().encode()
    assert logins.is_own(scheme + b"own")
    assert logins.is_principals(scheme + token)
    logins.know(lambda: definitions(ops=token_hash(token.decode())))
    assert logins.principal_of(scheme + token) is not None
    for other in (b"", b"Basic ", b"Bearer"):
        assert not logins.is_own(other + b"own")
        assert logins.principal_of(other + token) is None


def test_the_own_token_is_no_principals(logins: CallerTokens) -> None:
    logins.know(definitions)
    assert logins.is_own(bearer("own"))
    assert not logins.is_own(bearer("other"))
    assert logins.principal_of(bearer("own")) is None


def test_a_principals_token_is_told_by_how_it_begins(logins: CallerTokens) -> None:
    assert logins.is_principals(bearer(new_token()))
    assert not logins.is_principals(bearer("a guess"))


def test_failed_logins_are_counted_and_slowed_by_address(logins: CallerTokens, waits: list[float]) -> None:
    for _ in range(3):
        logins.refused("10.0.0.7")
    assert waits == []
    for _ in range(8):
        logins.refused("10.0.0.7")
    assert waits == [0.05, 0.1, 0.2, 0.4, *[LONGEST_DELAY_S] * 4]
    waits.clear()
    logins.refused("10.0.0.8")
    assert waits == []
    assert logins.failed == 12


def test_what_is_remembered_of_failed_logins_is_bounded(logins: CallerTokens) -> None:
    for number in range(3 * ADDRESSES_MAX):
        logins.refused(f"10.0.{number // 256}.{number % 256}")
    assert len(logins._failures) == ADDRESSES_MAX


def test_only_so_many_answers_wait_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waits holds a thread, and a flood must not take them all."""
    monkeypatch.setattr(module, "WAITING_MAX", 1)
    begun, go_on = threading.Event(), threading.Event()

    def pause(_: float) -> None:
        begun.set()
        assert go_on.wait(60)

    logins = CallerTokens("own", pause=pause)
    for _ in range(3):
        logins.refused("a")
    first = threading.Thread(target=logins.refused, args=("a",))
    first.start()
    assert begun.wait(60)
    # This one would hang until the first goes on.
    logins.refused("a")
    go_on.set()
    first.join()
    assert logins.failed == 5


def test_refused_calls_are_logged_rarely_and_without_their_token(logins: CallerTokens, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            logins.refused("10.0.0.7")
    assert len(caplog.messages) == 7
    assert "10.0.0.7" in caplog.messages[0]


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:40312", "10.0.0.7"),
        ("ipv6:[::1]:40312", "::1"),
        ("ipv6:%5Bfe80::1%5D:40312", "fe80::1"),
        ("unix:/run/socket", "unix:/run/socket"),
    ],
)
def test_the_address_of_a_caller_has_no_port(peer: str, address: str) -> None:
    assert address_of(peer) == address
