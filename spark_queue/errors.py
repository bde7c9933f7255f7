"""Every error that crosses the public surface, as one drawn tree.

::

    SparkQueueError
    ├── ConfigError        a definition, key, option or name is wrong; nothing was started
    ├── CallerError        a call does not fit: data, columns, bookmarks, sequences, modes
    ├── LeaseError         the caller does not, or no longer, hold what it speaks of
    ├── JournalError       the stored journal is missing, damaged, newer, or was changed by a stranger
    ├── AccessError        the caller may not do that (R12)
    └── CoordinatorError   no coordinator could be reached, or it may not serve here

Each error carries a stable ``code``, the facts as ``facts``, and a message that says what happened (with values), why, and
what to do; the texts stand in `error_texts`. The module imports nothing else of ours; it is safe to import anywhere.
"""

from __future__ import annotations

import difflib
import pickle
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from spark_queue import error_texts

_Parsed = TypeVar("_Parsed")

#: The substitute in a text for a byte that is no UTF-8, and cannot be encoded.
_SURROGATE = re.compile(r"[\ud800-\udfff]")

#: A count, the noun that follows it, and the verb of that; a clause in the past between them is the same for one and for many.
_COUNTED = re.compile(
    r"(?<![\w.,])(?P<number>\d[\d,]*)(?P<nouns>(?: [A-Za-z'-]+){0,3}? [A-Za-z]+\(s\))"
    r"(?P<that> that(?: [a-z]+ed [a-z]+)?)?(?P<verb> (?:are|were|have|find|wait|enter|belong)\b)?"
)
_OF_ONE = {" are": " is", " were": " was", " have": " has"}

#: A command in a text, up to the journal that it is about.
_OF_JOURNAL = re.compile(r"(`sparkq [a-z-]+(?: [a-z-]+)?) JOURNAL\b")

#: The most characters of a fact in a text: one of megabytes, such as a payload in the wrong place, is shown by its beginning.
SHOWN_CHARACTERS = 4_000

#: A sentence's end, and one more full stop; three of them leave something out.
_ENDED_TWICE = re.compile(r"((?<!\.)\.|[?!])\s?\.(?=\s|$)")


class SparkQueueError(Exception):
    """Base of every error raised by spark_queue.

    Parameters
    ----------
    code : str
        A key of `CATALOGUE`, for example ``"SUBSCRIPTION_TAKEN"``.
    **facts
        The values named by the code's text; also available as `facts`.
    """

    def __init__(self, code: str, **facts: Any) -> None:
        self.code = code
        self.facts: Mapping[str, Any] = facts
        # A lone surrogate is shown as such: no terminal and no log could write it.
        text = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", _text(code, facts))
        super().__init__(f"[{code}] {text}")

    @property
    def reason(self) -> str:
        """Why, for the text of another error: without the code and the next step, which that one has of its own."""
        given = self.facts.get("reason")
        return str(self).removeprefix(f"[{self.code}] ") if given is None else str(given)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles errors between processes, and exceptions with keyword arguments do not survive by themselves.
        return (error, (self.code, {name: _portable(fact) for name, fact in self.facts.items()}))


class ConfigError(SparkQueueError):
    """A definition, key, option or name is wrong; nothing was started or changed."""


class CallerError(SparkQueueError):
    """A call does not fit the data, the queue or its mode; nothing was changed."""


class LeaseError(SparkQueueError):
    """The caller does not, or no longer, hold the lease or subscription that it speaks of."""


class JournalError(SparkQueueError):
    """The stored journal is missing, damaged, newer than this software, or was changed by a stranger."""


class AccessError(SparkQueueError):
    """The caller may not do that: its principal lacks a right, or its token is over (R12)."""


class CoordinatorError(SparkQueueError):
    """No coordinator could be reached, or one may not serve here and now."""


class Refusal(NamedTuple):
    """The meaning of a code."""

    error: type[SparkQueueError]
    #: The event with its values, the reason, and the next step; values are filled in from the facts.
    text: str


#: Damage of a message file, whose messages cannot be entered or read; everything else goes on.
MESSAGE_FILE_CODES = frozenset({"MESSAGE_FILE_MISSING", "MESSAGE_FILE_CORRUPT"})

#: Refusals by which nothing more enters a message type until somebody acts; what entered before can be consumed.
STOPPING_CODES = frozenset({"TABLE_CHANGED", "TABLE_UNSUPPORTED", "TABLE_REPLACED", "LOG_GAP"})

#: Every code there is.
CATALOGUE: dict[str, Refusal] = {
    code: Refusal(kind, text)
    for kind, texts in (
        (ConfigError, error_texts.CONFIG),
        (CallerError, error_texts.CALLER),
        (LeaseError, error_texts.LEASE),
        (JournalError, error_texts.JOURNAL),
        (AccessError, error_texts.ACCESS),
        (CoordinatorError, error_texts.COORDINATOR),
    )
    for code, text in texts.items()
}


def error(code: str, facts: Mapping[str, Any]) -> SparkQueueError:
    """Build the error of a code, as the class that the table names; an unknown code (a newer peer) stays readable."""
    kind = CATALOGUE[code].error if code in CATALOGUE else SparkQueueError
    return kind(code, **facts)


def counted(text: str) -> str:
    """Return a text in which nouns and verbs agree with their counts: `1 row(s) are` becomes `1 row is`."""
    return _COUNTED.sub(_agreeing, text)


def with_journal(text: str, path: str) -> str:
    """Return a text in which commands name the journal by its path, and not by the word JOURNAL, as where nobody knows it."""
    return _OF_JOURNAL.sub(lambda found: f"{found[1]} {path}", text)


def _agreeing(found: re.Match[str]) -> str:
    number, nouns, that, verb = found["number"], found["nouns"], found["that"] or "", found["verb"] or ""
    if number != "1":
        return f"{number}{nouns.replace('(s)', 's')}{that}{verb}"
    return f"{number}{nouns.replace('(s)', '')}{that}{_OF_ONE.get(verb, f'{verb}s' if verb else '')}"


def parsed(parse: Callable[[Any], _Parsed], value: Any, *, key: str, where: str) -> _Parsed:
    """Return a value parsed by `parse`; its ValueError, which names the expected form, becomes BAD_VALUE."""
    try:
        return parse(value)
    except ValueError as reason:
        raise ConfigError("BAD_VALUE", key=key, where=where, value=value, expected=str(reason)) from None


def check_text(value: Any, *, key: str, where: str) -> None:
    """Refuse a value that is no text, or none that can be stored: bytes that are no UTF-8 come as lone surrogates from Linux.

    Raises
    ------
    ConfigError
        BAD_VALUE.
    """
    if not isinstance(value, str) or not _is_utf8(value):
        raise ConfigError("BAD_VALUE", key=key, where=where, value=value, expected="a text in UTF-8")


def _is_utf8(text: str) -> bool:
    try:
        # A text may have megabytes, and to encode it is several times as fast as to search it.
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.5) -> str:
    """Return the sentence that names the nearest known name, or an empty text when nothing is as like it, from 0 to 1."""
    lowered = {candidate.lower(): candidate for candidate in known}
    match = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=likeness)
    return f" Did you mean '{lowered[match[0]]}'?" if match else ""


def _portable(fact: Any) -> Any:
    """Return a fact as it is where it can be pickled, or as its text: a value that was refused may be anything."""
    try:
        pickle.dumps(fact)
    except Exception:  # noqa: BLE001 - objects raise any error.
        return _Told(str(fact), repr(fact))
    return fact


class _Told(str):
    """A fact that stayed behind, by the texts that it had."""

    __slots__ = ("_shown",)

    if TYPE_CHECKING:
        _shown: str

    def __new__(cls, text: str, shown: str) -> Self:
        told = super().__new__(cls, text)
        told._shown = shown
        return told

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Told, (str(self), self._shown))

    def __repr__(self) -> str:
        return self._shown


def _text(code: str, facts: Mapping[str, Any]) -> str:
    if code not in CATALOGUE:
        return ", ".join(f"{key}={_shown(value)}" for key, value in facts.items())
    shown = {name: _shown(fact) for name, fact in facts.items()}
    # A fact that is a sentence of its own, such as somebody else's error, ends with its own mark.
    return _ENDED_TWICE.sub(r"\1", counted(CATALOGUE[code].text.format_map(shown)))


def _shown(fact: Any) -> Any:
    """Return a fact as its text shows it."""
    if isinstance(fact, str) and type(fact) is not _Told:
        return _cut(fact)
    if fact is None or isinstance(fact, int | float):
        return fact
    text, shown = str(fact), repr(fact)
    return fact if len(text) <= SHOWN_CHARACTERS and len(shown) <= SHOWN_CHARACTERS else _Told(_cut(text), _cut(shown))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text):,} characters)"
