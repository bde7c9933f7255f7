"""Errors and their catalogue agree (DESIGN 10): every raise names a code that exists, with its class and its facts."""

from __future__ import annotations

import ast
import pickle
import re
import threading
from collections.abc import Iterator
from string import Formatter

import pytest

from spark_queue import errors
from spark_queue.errors import CATALOGUE, SparkQueueError
from tests.source_tree import SourceFile, product_files

CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
CLASSES = {SparkQueueError.__name__, *(kind.__name__ for kind, _ in CATALOGUE.values())}


def raise_problems(file: SourceFile) -> Iterator[str]:
    for call in (node for node in ast.walk(file.tree) if isinstance(node, ast.Call)):
        made = ast.unparse(call.func).rpartition(".")[2]
        code = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        if made not in CLASSES | {"error"} or not isinstance(code, str) or not CODE.fullmatch(code):
            continue
        if code not in CATALOGUE:
            yield file.error(call.lineno, f"code {code} is not in the catalogue")
            continue
        kind, text = CATALOGUE[code]
        if made not in {kind.__name__, "error"}:
            yield file.error(call.lineno, f"{code} is a {kind.__name__}, not a {made}")
        yield from (file.error(call.lineno, f"{code} needs fact '{fact}'") for fact in sorted(missing_facts(call, text)))


def missing_facts(call: ast.Call, text: str) -> set[str]:
    """Return the facts that a text names and a call does not; none where the call passes a whole mapping on."""
    keywords = [keyword.arg for keyword in call.keywords]
    if None in keywords or len(call.args) > 1:
        return set()
    return traits_of(text) - {keyword for keyword in keywords if keyword}


def traits_of(text: str) -> set[str]:
    """Return the names of the facts that a catalogue text speaks of."""
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in Formatter().parse(text) if name}


def codes_spoken_of(file: SourceFile) -> set[str]:
    return {node.value for node in ast.walk(file.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_raise_names_a_code_of_the_catalogue_with_its_class_and_facts() -> None:
    problems = [problem for file in product_files() for problem in raise_problems(file)]
    assert not problems, "\n".join(problems)


def test_every_code_of_the_catalogue_is_raised_somewhere() -> None:
    spoken_of = set[str]().union(*(codes_spoken_of(file) for file in product_files() if file.module != errors.__name__))
    silent = sorted(set(CATALOGUE) - spoken_of)
    assert not silent, "codes that nothing raises: " + ", ".join(silent)


@pytest.mark.parametrize("code", CATALOGUE)
def test_text_says_what_happened_and_ends_as_a_sentence(code: str) -> None:
    kind, text = CATALOGUE[code]
    assert CODE.fullmatch(code)
    assert issubclass(kind, SparkQueueError)
    # Facts that are sentences of their own, such as {next_step}, may come last.
    assert text.endswith((".", "}")), f"{code}: {text}"


@pytest.mark.parametrize("code", CATALOGUE)
def test_message_shows_its_facts_and_survives_pickling(code: str) -> None:
    facts = dict.fromkeys(traits_of(CATALOGUE[code][1]), 7)
    made = errors.error(code, facts)
    copy, arguments = made.__reduce__()
    assert str(made).startswith(f"[{code}] ")
    assert str(copy(*arguments)) == str(made)
    assert type(copy(*arguments)) is CATALOGUE[code][0]


@pytest.mark.parametrize("value", [lambda: None, threading.Lock(), (letter for letter in "ab")])
def test_a_refused_value_that_cannot_be_pickled_does_not_keep_its_error_from_its_reader(value: object) -> None:
    made = errors.error("BAD_VALUE", {"key": "k", "where": "w", "value": value, "expected": "a text"})
    copy = pickle.loads(pickle.dumps(made))
    again = pickle.loads(pickle.dumps(copy))
    assert str(again) == str(copy) == str(made)


def test_a_lone_surrogate_in_a_fact_can_be_printed() -> None:
    said = str(errors.error("UNKNOWN_QUEUE", {"queue": "W\udcff", "nearest": ""}))
    assert "'W\\udcff'" in said.encode().decode()


@pytest.mark.parametrize("value", ["y" * 5_000_000, b"y" * 5_000_000, ["y"] * 1_000_000, {"payload": "y" * 5_000_000}])
def test_a_fact_of_megabytes_is_shown_by_its_beginning_and_kept_whole(value: object) -> None:
    """A text of megabytes fills a log, and takes a second of its process for each few of them."""
    made = errors.error("BAD_VALUE", {"key": "k", "where": "w", "value": value, "expected": "a number"})
    assert made.facts["value"] is value
    assert f"is {repr(value)[:3_990]}" in str(made)
    assert re.search(r"… \([\d,]{9,} characters\)'?, but it must be a number. Correct the value.$", str(made))
    assert len(str(made)) < 2 * errors.SHOWN_CHARACTERS
    assert len(str(errors.error("OF_A_NEWER_PEER", {"value": value}))) < 2 * errors.SHOWN_CHARACTERS
    assert str(pickle.loads(pickle.dumps(made))) == str(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('raise ConfigError("NO_SUCH_CODE", x=1)', "1: error: code NO_SUCH_CODE is not in the catalogue"),
        ('\nraise LeaseError("NOT_A_JOURNAL", path=p, reason=r)', "2: error: NOT_A_JOURNAL is a JournalError, not a LeaseError"),
        ('raise errors.JournalError("NOT_A_JOURNAL", path=p)', "1: error: NOT_A_JOURNAL needs fact 'reason'"),
    ],
)
def test_rule_names_file_and_line_when_broken(text: str, message: str) -> None:
    assert list(raise_problems(SourceFile("spark_queue/x.py", text))) == [f"spark_queue/x.py:{message}"]


def test_rule_is_silent_about_other_errors_and_facts_passed_on() -> None:
    text = 'ValueError("NO")\nJournalError("NOT_A_JOURNAL", **facts)\nerror("NOT_A_JOURNAL", facts)\nerror(code, facts)'
    assert list(raise_problems(SourceFile("spark_queue/x.py", text))) == []


@pytest.mark.parametrize("code", CATALOGUE)
@pytest.mark.parametrize("fact", ["It is so.", "Why is it so?", "it is 'so'."])
def test_facts_that_are_sentences_end_them_once(code: str, fact: str) -> None:
    """Reasons come from libraries, too, which end their sentences or do not."""
    said = str(errors.error(code, dict.fromkeys(traits_of(CATALOGUE[code][1]), fact)))
    assert re.search(r"[.?]\s?\.(\s|$)", said) is None, said


def test_a_sentence_of_somebody_else_that_was_ended_again_ends_once() -> None:
    text = str(errors.ConfigError("DEFINITIONS_UNREADABLE", path="queues.toml", reason="Line 1 is wrong.."))
    assert "Line 1 is wrong. They are TOML" in text


@pytest.mark.parametrize("value", ["^a?.b", "..", "and so on...", "1s..5m x2"])
def test_values_are_shown_as_they_are(value: str) -> None:
    assert repr(value) in str(errors.ConfigError("BAD_VALUE", key="k", where="[queues.W]", value=value, expected="another"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("9 column(s) find no room", "9 columns find no room"),
        ("1 column(s) find no room", "1 column finds no room"),
        ("1 empty column(s) are hidden", "1 empty column is hidden"),
        ("1,001 message(s) wait in 1 queue(s)", "1,001 messages wait in 1 queue"),
        ("the 1 row(s) are published", "the 1 row is published"),
        ("1 commit(s) that changed rows were passed over", "1 commit that changed rows was passed over"),
        ("1 message(s) belong to it", "1 message belongs to it"),
        ("version 1.1 of row(s)", "version 1.1 of row(s)"),
    ],
)
def test_nouns_and_verbs_agree_with_their_counts(text: str, said: str) -> None:
    assert errors.counted(text) == said


def test_no_error_leaves_a_plural_open() -> None:
    told = [str(errors.error(code, dict.fromkeys(traits_of(text), 1))) for code, (_, text) in CATALOGUE.items()]
    assert [text for text in told if "(s)" in text] == []
