"""Reading Spark SQL text into sqlglot's tree, and refusing with the place, the reason and a next step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError

from spark_queue.errors import ConfigError

_SparkParser: Any = Spark.Parser


class _Dialect(Spark):
    """Spark's grammar, with functions left as they were written: what a name means is decided here, not in sqlglot."""

    class Parser(_SparkParser):  # type: ignore[misc]  # sqlglot declares its parsers as variables.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in _SparkParser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
        }
        # Otherwise CAST is read as TRY_CAST, and what Spark fails on would be NULL.
        STRICT_CAST: ClassVar = True


_LENGTH_MAX = 10_000


class _RefusedError(Exception):
    """A part of an expression is not accepted, for code, node, reason and next step; `refusals` tells the whole."""


def invalid(node: exp.Expression | None, reason: str, next_step: str) -> Exception:
    """Make the refusal of what Spark refuses too."""
    return _RefusedError("EXPRESSION_INVALID", node, reason, next_step)


def unsupported(node: exp.Expression | None, reason: str, next_step: str) -> Exception:
    """Make the refusal of what would not give the same here as in Spark."""
    return _RefusedError("EXPRESSION_UNSUPPORTED", node, reason, next_step)


@contextmanager
def refusals(text: str, what: str) -> Iterator[None]:
    """Turn refusals of parts into errors that name the expression and the place in it."""
    try:
        yield
    except _RefusedError as refused:
        code, node, reason, next_step = refused.args
        place = f"at {_position(text, node)}"
        raise ConfigError(code, what=what, text=text, place=place, reason=reason, next_step=next_step) from None


def read(text: str) -> exp.Expression:
    """Parse one expression."""
    next_step = "Write one Spark SQL expression, such as \"topic = 'orders' AND sequence > 5\"."
    if not text.strip() or len(text) > _LENGTH_MAX:
        raise invalid(None, f"it is empty or longer than {_LENGTH_MAX} characters.", next_step)
    try:
        # RecursionError: parentheses nest deeper than the parser can follow.
        tree = sqlglot.parse(text, dialect=_Dialect())
    except ParseError as failure:
        first = failure.errors[0] if failure.errors else {}
        near = f" near '{first['highlight']}' (character {_offset(text, first)})" if first.get("highlight") else ""
        raise invalid(None, f"it cannot be read{near}: {_said(first)}.", next_step) from None
    except (TokenError, SqlglotError, RecursionError):
        raise invalid(None, "it cannot be read: a quote or parenthesis is left open, or it nests too deeply.", next_step) from None
    if len(tree) != 1 or not isinstance(tree[0], exp.Expression):
        raise invalid(None, "it is not one expression.", next_step)
    return tree[0]


def _said(first: dict[str, Any]) -> str:
    said = str(first.get("description", ""))
    return "something is missing there" if not said or "<class" in said else said.rstrip(".")


def _position(text: str, node: exp.Expression | None) -> str:
    """Return the place of a node: by the first name or literal under it, whose place in the text is known."""
    if node is not None:
        for part in node.walk():
            if "start" in part.meta:
                return f"character {part.meta['start'] + 1}"
        name = node.name if isinstance(node, exp.Anonymous | exp.Literal) else ""
        found = re.search(re.escape(name), text, re.IGNORECASE) if name else None
        if found:
            return f"character {found.start() + 1}"
    return "character 1"


def _offset(text: str, found: dict[str, Any]) -> int:
    line, column = int(found.get("line", 1)), int(found.get("col", 1))
    return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column
