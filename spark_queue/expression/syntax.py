"""Reading Spark SQL text into sqlglot's tree, and refusing with the place, the reason and a next step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from spark_queue.errors import ConfigError, SparkQueueError

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

#: How deep brackets may nest, and operators and functions in the tree that is read: far from where Python, or DuckDB, gives up.
_BRACKETS_MAX = 40
_DEPTH_MAX = 200

#: How much of an expression an error repeats, in characters.
_SHOWN = 800

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)

_TOO_DEEP = "it nests too deeply."
_FLATTER = "Nest less, or put what it computes into a column."


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
    """Turn refusals of parts into errors that name the expression and the place in it, and whatever else is raised, too.

    Libraries raise what they like for texts that nobody thought of; that is then the cause of the error.
    """
    try:
        yield
    except SparkQueueError:
        raise
    except Exception as raised:  # noqa: BLE001 - whatever a library raises
        refused, cause = raised, None
        if isinstance(raised, RecursionError):
            refused = unsupported(None, _TOO_DEEP, _FLATTER)
        elif not isinstance(raised, _RefusedError):
            reason = f"it cannot be translated ({type(raised).__name__}: {str(raised)[:200]})."
            refused, cause = unsupported(None, reason, "Write it in another way."), raised
        code, node, reason, next_step = refused.args
        said = {"text": _shortened(text), "reason": _shortened(reason), "place": f"at {_position(text, node)}"}
        raise ConfigError(code, what=what, next_step=next_step, **said) from cause


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def read(text: str) -> exp.Expression:
    """Parse one expression."""
    next_step = "Write one Spark SQL expression, such as \"topic = 'orders' AND sequence > 5\"."
    if not text.strip() or len(text) > _LENGTH_MAX:
        raise invalid(None, f"it is empty or longer than {_LENGTH_MAX:,} characters.", next_step)
    dialect = _Dialect()
    try:
        tokens = dialect.tokenize(text)
        # Counted before anything follows them down.
        if _nested(tokens) > _BRACKETS_MAX:
            raise unsupported(None, _TOO_DEEP, _FLATTER)
        tree = dialect.parser().parse(tokens, text)
    except ParseError as failure:
        first = failure.errors[0] if failure.errors else {}
        near = f" near '{first['highlight']}' (character {_offset(text, first)})" if first.get("highlight") else ""
        raise invalid(None, f"it cannot be read{near}: {_said(first)}.", next_step) from None
    except (TokenError, SqlglotError):
        raise invalid(None, "it cannot be read: a quote or parenthesis is left open.", next_step) from None
    if len(tree) != 1 or not isinstance(tree[0], exp.Expression):
        raise invalid(None, "it is not one expression.", next_step)
    if _depth(tree[0]) > _DEPTH_MAX:
        raise unsupported(None, _TOO_DEEP, _FLATTER)
    return tree[0]


def _nested(tokens: Iterable[Token]) -> int:
    """Return how deep brackets nest, and CASE with them."""
    steps = ((token.token_type in _OPENING) - (token.token_type in _CLOSING) for token in tokens)
    return max(accumulate(steps), default=0)


def _depth(tree: exp.Expression) -> int:
    """Return how deep a tree is, where conditions that AND or OR joins stand side by side."""
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(each, depth + (not is_joined(node, each))) for each in node.iter_expressions()]
    return deepest


def is_joined(node: exp.Expression, part: exp.Expression) -> bool:
    """Return whether a part of AND or OR is the same operator again, so that both join one row of conditions."""
    return isinstance(node, exp.And | exp.Or) and type(part) is type(node)


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
