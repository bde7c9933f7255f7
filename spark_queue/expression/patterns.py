"""Patterns of LIKE and RLIKE, rewritten or refused so that RE2 decides as Java does."""

from __future__ import annotations

import re

import re2
from sqlglot import exp

from spark_queue.core.definitions.definition import QUIET
from spark_queue.expression.steps import invalid, unsupported

#: Java's line ends, which its dot does not match.
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_PATTERN_BLANK = r" \t\n\x0B\f\r"

#: Java's `$` also matches before a line end that closes the text.
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_TOKEN = re.compile(
    r"(?P<escape>\\(?:[dDwW.*+?^$|(){}\[\]\\/\-&~#@!%,;:=<>\"' _]|[tnrf]))|(?P<blank>\\s)|"
    r"(?P<class>\[\^?(?:\\[dws\]\[\\^.\-+*?$|(){}/tnrf]|[^\\\[\]&])+\])"
    r"|(?P<dot>\.)|(?P<end>\$)|(?P<start>\^)|(?P<group>\((?:\?:)?(?!\?)|\)|\|)"
    r"|(?P<times>(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??(?![*+?{]))|(?P<plain>[^\\\[\](){}.*+?^$|])",
    re.DOTALL,
)


def like(node: exp.Expression, pattern: str) -> str:
    """Check a LIKE pattern: Spark refuses an escape before anything but `_`, `%` or itself."""
    if re.fullmatch(r"(?:[^\\]|\\[_%\\])*", pattern, re.DOTALL) is None:
        raise invalid(node, f"'\\' escapes nothing in the pattern '{pattern}'.", "Escape only _, % and \\.")
    return pattern


def regular(node: exp.Expression, pattern: str) -> str:
    """Rewrite a Java regular expression for RE2."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None or (token.lastgroup == "end" and token.end() < len(pattern)):
            raise unsupported(
                node,
                f"Java and RE2 may disagree about '{pattern[at : at + 8]}' in the pattern '{pattern}'.",
                "Use plain characters, . [ ] ( ) | * + ? {n,m} ^, \\d \\w \\s, and $ at the very end.",
            )
        out.append(_rewritten(token))
        at = token.end()
    rewritten = "".join(out)
    try:
        re2.compile(rewritten, QUIET)
    except re2.error:
        raise invalid(node, f"'{pattern}' is not a regular expression.", "Correct it.") from None
    return rewritten


def _rewritten(token: re.Match[str]) -> str:
    match token.lastgroup:
        case "dot":
            return _DOT
        case "end":
            return _END
        case "blank":
            return f"[{_PATTERN_BLANK}]"
        case "class":
            return token[0].replace("\\s", _PATTERN_BLANK)
        case "escape":
            return token[0] if token[0][1] in "dDwWtnrf" else f"\\x{{{ord(token[0][1]):x}}}"
        case _:
            return token[0]
