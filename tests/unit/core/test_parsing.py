"""Definitions: every default, every relation, and every refusal with its text (DESIGN 15.7, 15.8)."""

from __future__ import annotations

from typing import Any

import pytest

from spark_queue.core.definitions.definition import TABLES
from spark_queue.core.definitions.keys import keys_of
from spark_queue.core.definitions.parsing import parse
from spark_queue.errors import ConfigError

JSON = {"topics": ["T", "U"]}


def with_queue(**keys: Any) -> dict[str, Any]:
    return {"message_types": {"json": JSON}, "queues": {"Q": {"underlying_topic": "T", **keys}}}


def with_letters(queue: dict[str, Any] | None = None, letters: dict[str, Any] | None = None) -> dict[str, Any]:
    source = {"underlying_topic": "T", "dead_letter_queue": "D", **(queue or {})}
    return {"message_types": {"json": JSON}, "queues": {"Q": source, "D": {"message_type": "json", **(letters or {})}}}


def with_types(**types: list[str]) -> dict[str, Any]:
    return {"message_types": {name: {"columns": "id BIGINT", "topics": topics} for name, topics in types.items()}}


def refused(stored: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(stored)
    return str(caught.value)


REFUSALS: list[tuple[str, Any, str, str]] = [
    ("no table of tables", {"queues": 3}, "BAD_VALUE", "'queues' in the definitions is 3, but it must be tables of keys by name"),
    ("no table", {"queues": {"Q": 3}}, "BAD_VALUE", "'Q' in [queues] is 3, but it must be a table of keys"),
    ("no table of a type", {"message_types": {"json": []}}, "BAD_VALUE", "'json' in [message_types] is []"),
    ("no journal table", {"journal": "os"}, "BAD_VALUE", "but it must be a table of keys"),
    ("unknown section", {"queue": {}}, "UNKNOWN_KEY", "Unknown key 'queue' in the definitions. Did you mean 'queues'?"),
    ("unknown journal key", {"journal": {"durable": "os"}}, "UNKNOWN_KEY", "in [journal]. Did you mean 'durability'?"),
    ("unknown queue key", with_queue(max_delivery=1), "UNKNOWN_KEY", "in [queues.Q]. Did you mean 'max_deliveries'?"),
    ("unknown type key", {"message_types": {"a": {"colums": "id INT"}}}, "UNKNOWN_KEY", "Did you mean 'columns'?"),
    ("columns of json", {"message_types": {"json": {"columns": "a INT"}}}, "UNKNOWN_KEY", "'columns' in [message_types.json]"),
    ("no columns", {"message_types": {"a": {"topics": ["T"]}}}, "BAD_VALUE", "'columns' in [message_types.a] is None"),
    ("empty columns", {"message_types": {"a": {"columns": ""}}}, "BAD_VALUE", "it must be a text"),
    ("topics as text", {"message_types": {"json": {"topics": "T"}}}, "BAD_VALUE", "it must be a list of texts"),
    ("duration without unit", with_queue(lease_period="60"), "BAD_VALUE", "'60', but it must be a duration with a unit"),
    ("duration as number", with_queue(lease_period=60), "BAD_VALUE", "is 60, but it must be a duration with a unit"),
    (
        "renewed for less than a period",
        with_queue(lease_period="60s", lease_renewal_limit="59s"),
        "CONTRADICTORY_SETTINGS",
        "lease_renewal_limit, lease_period",
    ),
    ("unknown fairness", with_queue(fairness="fair"), "BAD_VALUE", '"fast" or "round-robin" or "proportional"'),
    *(
        (f"{model} at-most-once", with_queue(semantics="at-most-once", fairness=model), "CONTRADICTORY_SETTINGS", "(R34)")
        for model in ("fast", "proportional")
    ),
    ("no time at all", with_queue(expiration="0s"), "BAD_VALUE", "a duration with a unit"),
    ("less than a millisecond", with_queue(expiration="0.4ms"), "BAD_VALUE", "a duration with a unit"),
    ("longer than a century", with_queue(expiration="36501d"), "BAD_VALUE", "up to 36500d"),
    ("absurdly long", with_queue(expiration="9" * 400 + "d"), "BAD_VALUE", "up to 36500d"),
    ("negative limit", with_queue(max_deliveries=-1), "BAD_VALUE", "a whole number, 0 for no limit"),
    ("limit beyond any store", with_queue(max_backlog=2**63), "BAD_VALUE", "of at most 63 bits"),
    ("limit as text", with_queue(max_backlog="5"), "BAD_VALUE", "a whole number, 0 for no limit"),
    ("limit as boolean", with_queue(max_cancels=True), "BAD_VALUE", "a whole number, 0 for no limit"),
    ("recovery point as boolean", with_queue(recovery_point=True), "BAD_VALUE", "epoch, now, creation, a bookmark"),
    *(
        (f"backoff {value!r}", with_queue(retry_backoff=value), "BAD_VALUE", 'such as "1s..5m x2"')
        for value in (
            30,
            "",
            "30",
            "1s..5m",
            "5m..1s x2",
            "1s..5m x0.5",
            "1s..5m x101",
            "1s..5m x",
            "1s...5m x2",
            "1s..5m x2 x3",
            "0s",
        )
    ),
    (
        "retention of dead letters that cannot be",
        with_queue(semantics="at-most-once", dead_letter_retention="1d"),
        "CONTRADICTORY_SETTINGS",
        "an at-most-once queue has no dead letters",
    ),
    ("a beacon is late", {"replication": {"unreachable_after": "14s"}}, "BAD_VALUE", "a duration of 15 s at least"),
    ("null", with_queue(max_cancels=None), "BAD_VALUE", "a whole number, 0 for no limit"),
    ("semantics", with_queue(semantics="exactly-once"), "BAD_VALUE", '"at-least-once" or "at-most-once"'),
    ("leasing", with_queue(leasing="lax"), "BAD_VALUE", '"sublet" or "strict"'),
    ("durability", {"journal": {"durability": "none"}}, "BAD_VALUE", '"os" or "fsync"'),
    ("recovery point", with_queue(recovery_point="later"), "BAD_VALUE", "epoch, now, creation, a bookmark, or an ISO-8601 time"),
    ("time without offset", with_queue(recovery_point="2011-12-09T12:50:00"), "BAD_VALUE", "an ISO-8601 time with an offset"),
    ("no decimal digits", with_queue(recovery_point="²"), "BAD_VALUE", "a bookmark"),
    ("type name", {"message_types": {"a b": {"columns": "id INT"}}}, "NAME_INVALID", "message type name 'a b'"),
    ("queue name", {"queues": {"a/b": {"message_type": "json"}}}, "NAME_INVALID", "The queue name 'a/b' is not allowed"),
    ("dots", {"queues": {"..": {"message_type": "json"}}}, "NAME_INVALID", "The queue name '..'"),
    ("long name", {"queues": {"a" * 250: {"message_type": "json"}}}, "NAME_INVALID", "1 to 249 characters"),
    ("topic name", {"message_types": {"json": {"topics": ["a b"]}}}, "NAME_INVALID", "The topic name 'a b'"),
    ("type names by case", with_types(Json=[]), "NAME_CASE_CLASH", "'Json' and 'json' differ only in case"),
    (
        "queue names by case",
        {"message_types": {"json": JSON}, "queues": {"T": {}, "t": {"underlying_topic": "T"}}},
        "NAME_CASE_CLASH",
        "queue",
    ),
    ("topic twice", with_types(a=["T"], b=["T"]), "TOPIC_CLAIMED_TWICE", "by message types 'a' and 'b'"),
    (
        "topic and pattern",
        with_types(a=["T1"], b=["^T.*$"]),
        "TOPIC_CLAIMED_TWICE",
        "Topic 'T1' is claimed by message types 'a' and 'b'",
    ),
    ("bad pattern", {"message_types": {"json": {"topics": ["^(a"]}}}, "BAD_VALUE", "a valid RE2 pattern (missing )"),
    (
        "bad pattern of a queue",
        with_queue(underlying_topic="^a(?=b)", default_publish_target="T"),
        "BAD_VALUE",
        "a valid RE2 pattern",
    ),
    ("unknown topic", with_queue(underlying_topic="TT"), "UNKNOWN_TOPIC", "No message type takes topic 'TT'."),
    ("own name as topic", {"message_types": {"json": JSON}, "queues": {"Q": {}}}, "UNKNOWN_TOPIC", "topic 'Q'"),
    (
        "ambiguous topic",
        {**with_types(a=["^T.*"], b=["^.*T$"]), "queues": {"TT": {}}},
        "TOPIC_AMBIGUOUS",
        "patterns of message types a, b",
    ),
    (
        "unknown type",
        {"queues": {"Q": {"underlying_topic": "T", "dead_letter_queue": "D"}, "D": {"message_type": "jso"}}},
        "UNKNOWN_TOPIC",
        "",
    ),
    ("unknown type of letters", with_letters(letters={"message_type": "jso"}), "UNKNOWN_MESSAGE_TYPE", "Did you mean 'json'?"),
    (
        "type of another topic",
        with_queue(message_type="binary"),
        "CONTRADICTORY_SETTINGS",
        "topic 'T' belongs to message type 'json', not 'binary'",
    ),
    (
        "pattern without target",
        with_queue(underlying_topic="^T$"),
        "BAD_VALUE",
        "given, because underlying_topic is a pattern (R62)",
    ),
    ("foreign target", with_queue(default_publish_target="U"), "BAD_VALUE", "one of the queue's own topics (T)"),
    (
        "target that the pattern misses",
        with_queue(underlying_topic="^T$", default_publish_target="U"),
        "BAD_VALUE",
        "own topics (^T$)",
    ),
    ("unknown letters", with_queue(dead_letter_queue="D"), "BAD_VALUE", "must be a queue of these definitions"),
    ("letters as list", with_queue(dead_letter_queue=["D"]), "BAD_VALUE", "it must be a text"),
    ("own letters", with_queue(dead_letter_queue="Q"), "CONTRADICTORY_SETTINGS", "'underlying_topic' has no meaning there"),
    (
        "letters without type",
        {"message_types": {"json": JSON}, "queues": {"T": {"dead_letter_queue": "D"}, "D": {}}},
        "BAD_VALUE",
        "given for a dead-letter queue",
    ),
    ("letters with topic", with_letters(letters={"underlying_topic": "T"}), "CONTRADICTORY_SETTINGS", "by reference only"),
    ("letters with target", with_letters(letters={"default_publish_target": "T"}), "CONTRADICTORY_SETTINGS", "by reference only"),
    ("letters with recovery point", with_letters(letters={"recovery_point": "now"}), "CONTRADICTORY_SETTINGS", "by reference only"),
    ("letters with expiration", with_letters(letters={"expiration": "1h"}), "CONTRADICTORY_SETTINGS", "by reference only"),
    ("letters of letters", with_letters(letters={"dead_letter_queue": "Q"}), "CONTRADICTORY_SETTINGS", "by reference only"),
    (
        "letters of another type",
        with_letters(letters={"message_type": "binary"}),
        "CONTRADICTORY_SETTINGS",
        "'D' has message type 'binary', this queue 'json'",
    ),
    (
        "letters of at-most-once",
        with_letters(queue={"semantics": "at-most-once"}),
        "CONTRADICTORY_SETTINGS",
        "an at-most-once queue has no dead letters",
    ),
]


@pytest.mark.parametrize(("stored", "code", "text"), [entry[1:] for entry in REFUSALS], ids=[entry[0] for entry in REFUSALS])
def test_parse_refuses_by_name_what_is_wrong(stored: Any, code: str, text: str) -> None:
    message = refused(stored)
    assert message.startswith(f"[{code}]")
    assert text in message


def test_nothing_but_the_error_tells_of_a_bad_pattern(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 by itself writes to stderr, too, and not as Python does."""
    refused({"message_types": {"json": {"topics": ["^(a"]}}})
    assert capfd.readouterr().err == ""


def test_a_lease_that_lasts_longer_than_renewals_by_default_is_not_refused_for_that() -> None:
    assert parse(with_queue(lease_period="2h")).queue("Q").lease_renewal_limit_ms == 2 * 3_600_000
    assert parse(with_queue(lease_period="1m")).queue("Q").lease_renewal_limit_ms == 3_600_000


def test_parse_refuses_two_sources_of_one_dead_letter_queue_naming_the_other() -> None:
    stored = with_letters()
    stored["queues"]["Q2"] = {"underlying_topic": "T", "dead_letter_queue": "D"}
    assert "'D' already takes the dead letters of 'Q2'" in refused(stored)


@pytest.mark.parametrize("stored", [entry[1] for entry in REFUSALS if entry[2] == "NAME_INVALID"])
def test_names_follow_one_grammar(stored: Any) -> None:
    assert "names are 1 to 249 characters of A-Z a-z 0-9 . _ -" in refused(stored)


def test_defaults_are_those_of_the_table() -> None:
    definitions = parse({"message_types": {"json": {"topics": ["T"]}}, "queues": {"T": {}}})
    queue = definitions.queue("T")
    assert (queue.message_type, queue.underlying_topic, queue.default_publish_target) == ("json", "T", "T")
    assert (queue.semantics, queue.leasing, queue.recovery_point) == ("at-least-once", "sublet", "epoch")
    assert (queue.lease_period_ms, queue.lease_renewal_limit_ms, queue.subscription_retention_ms) == (
        60_000,
        3_600_000,
        7 * 86_400_000,
    )
    assert (queue.max_backlog, queue.max_per_subscription_backlog, queue.max_deliveries, queue.max_cancels) == (0, 0, 0, 0)
    assert (queue.expiration_ms, queue.dead_letter_queue) == (None, None)
    assert (definitions.journal.durability, definitions.journal.coordinator_idle_ms) == ("os", 60_000)
    assert definitions.journal.coordinator_idle_ms == 60_000
    assert set(parse({}).message_types) == {"json", "binary"}


def test_every_key_is_documented_and_named_once() -> None:
    for keys in map(keys_of, TABLES.values()):
        assert keys
        assert len({key.name for key in keys}) == len(keys)
        assert all(key.about.endswith(".") for key in keys)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("250ms", 250), ("60s", 60_000), ("1.5h", 5_400_000), (" 7 d ", 604_800_000), ("36500d", 3_153_600_000_000)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, duration_ms: int) -> None:
    assert parse(with_queue(lease_period=text)).queue("Q").lease_period_ms == duration_ms


@pytest.mark.parametrize(
    ("text", "delays_ms"),
    [
        ("30s", [30_000] * 4),
        ("1s..5m x2", [1_000, 2_000, 4_000, 8_000]),
        ("1.5s..2s x1.2", [1_500, 1_800, 2_000, 2_000]),
        (" 1s..1s  x100 ", [1_000] * 4),
    ],
)
def test_a_backoff_grows_by_its_factor_up_to_its_longest_delay(text: str, delays_ms: list[int]) -> None:
    backoff = parse(with_queue(retry_backoff=text)).queue("Q").retry_backoff
    assert backoff is not None
    assert [backoff.delay_ms(times) for times in range(4)] == delays_ms
    assert backoff.delay_ms(10**6) == backoff.max_ms


@pytest.mark.parametrize("value", ["epoch", "now", "creation", "42", 42, "2011-12-09T12:50:00+00:00", "2011-12-09T12:50:00Z"])
def test_a_recovery_point_is_kept_as_it_was_written(value: str | int) -> None:
    assert parse(with_queue(recovery_point=value)).queue("Q").recovery_point == str(value)


def test_a_pattern_is_matched_against_the_whole_topic() -> None:
    definitions = parse(with_queue(underlying_topic="^T", default_publish_target="T"))
    assert definitions.queue("Q").takes("T")
    assert not definitions.queue("Q").takes("T2")


def test_a_coordinator_cannot_be_told_to_end_before_anybody_finds_it() -> None:
    with pytest.raises(ConfigError, match=r'\[BAD_VALUE\].*coordinator_idle.*999ms.*a duration of "1s" or more'):
        parse({"journal": {"coordinator_idle": "999ms"}})
    assert parse({"journal": {"coordinator_idle": "1s"}}).journal.coordinator_idle_ms == 1_000
