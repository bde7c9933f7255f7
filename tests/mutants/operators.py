"""The places of a Python source where an operator can change one thing; the text around stays as it is.

Left out is what no test owes an answer to: texts and what joins them, annotations, decorators, options of a class, ``__all__``,
what only type checkers read, calls of a logger, asserts, and ``strict=``, which asserts as well.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from tests.mutants.change import Change

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.In: "in", ast.NotIn: "not in",
    ast.Is: "is", ast.IsNot: "is not", ast.And: "and", ast.Or: "or", ast.Add: "+", ast.Sub: "-", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
_PAIRS = (
    ("<", "<="), (">", ">="), ("==", "!="), ("in", "not in"), ("is", "is not"), ("and", "or"), ("+", "-"), ("&", "|"),
    ("min", "max"),
)  # fmt: skip
_SWAPPED = dict([*_PAIRS, *((after, before) for before, after in _PAIRS)])

_LOG_METHODS = ("debug", "info", "warning", "error", "exception", "critical", "log")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def changes(path: str, text: str) -> list[Change]:
    """Return each change that an operator can make in a source, in the order of the text."""
    source = _Source(path, text)
    made = (each for node, function in _walk(ast.parse(text), None) for each in _changes_of(source, node, function))
    # An operator may do to a constant what another does to the condition that it is.
    return sorted({(each.start, each.before, each.after): each for each in made}.values(), key=lambda each: (each.start, each.name))


class _Source:
    """A text, and the places in it that a syntax tree names: by line, and by the column in UTF-8."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._text = text
        self._lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]

    def whole(self, node: ast.expr | ast.stmt, operator: str, after: str) -> Change:
        """Return the change of a node's text to another one."""
        return self._change(self._start(node), self._text[self._start(node) : self._end(node)], operator, after)

    def between(self, left: ast.expr, operator: ast.AST, right: ast.expr) -> Iterator[Change]:
        """Yield the swap of an operator that stands between two operands, if it has a counterpart."""
        if (sign := _OPERATORS.get(type(operator))) is not None:
            start = self._end(left)
            # Parentheses and comments may stand beside it.
            gap = re.sub("#.*", lambda comment: " " * len(comment[0]), self._text[start : self._start(right)])
            [found] = re.finditer(r"\s+".join(map(re.escape, sign.split())), gap)
            yield self._change(start + found.start(), found[0], f"swap {sign}", _SWAPPED[sign])

    def without_not(self, node: ast.UnaryOp) -> Change:
        """Return the change that leaves out the word, with the space behind it."""
        [word] = re.findall(r"\Anot\s*", self._text[self._start(node) :])
        return self._change(self._start(node), word, "drop not", "")

    def _change(self, start: int, before: str, operator: str, after: str) -> Change:
        line = self._text.count("\n", 0, start) + 1
        return Change(self._path, line, start - self._starts[line - 1] + 1, operator, start, before, after)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._at(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._at(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _walk(node: ast.AST, function: _Function | None) -> Iterator[tuple[ast.AST, _Function | None]]:
    """Yield each node that operators look at, with the function that it stands in."""
    if not _is_left_out(node):
        yield node, function
        inside = node if isinstance(node, _Function) else function
        for child in _children(node):
            yield from _walk(child, inside)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.keyword(arg="strict") | ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.If(test=condition):
            return ast.unparse(condition).endswith("TYPE_CHECKING")
        case ast.AnnAssign(annotation=annotation):
            return re.match(r"(typing\.)?(ClassVar|TypeAlias)\b", ast.unparse(annotation)) is not None
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger, attr=method))):
            return method in _LOG_METHODS and re.match("_?log(ger|ging)?\\b", ast.unparse(logger), re.IGNORECASE) is not None
    return False


def _children(node: ast.AST) -> Iterable[ast.AST]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return [*node.args.defaults, *(default for default in node.args.kw_defaults if default is not None), *node.body]
        case ast.ClassDef():
            return node.body
        case ast.AnnAssign():
            return [node.value] if node.value is not None else []
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
            # The types there are joined as in an annotation.
            return node.args[:1]
        case ast.Call(func=ast.Name(id="int"), args=[ast.BoolOp(op=ast.Or(), values=[told, ast.Constant(value=0)])]):
            # Where the value is always told, only type checkers ask for the zero.
            return [told]
    return ast.iter_child_nodes(node)


def _changes_of(source: _Source, node: ast.AST, function: _Function | None) -> Iterator[Change]:
    yield from _of_expression(source, node)
    yield from _of_statement(source, node, function)
    for condition in _conditions(node):
        yield source.whole(condition, "always true", "True")
        yield source.whole(condition, "always false", "False")


def _of_expression(source: _Source, node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=signs, comparators=others):
            for (before, after), sign in zip(pairwise([left, *others]), signs, strict=True):
                yield from source.between(before, sign, after)
        case ast.BoolOp(op=sign, values=values):
            for before, after in pairwise(values):
                yield from source.between(before, sign, after)
        case ast.BinOp(left=left, op=sign, right=right) if not _is_joined(node):
            yield from source.between(left, sign, right)
        case ast.UnaryOp(op=ast.Not()):
            yield source.without_not(node)
        case ast.Constant(value=bool(value)):
            yield source.whole(node, f"swap {value}", str(not value))
        case ast.Constant(value=int(value)):
            yield source.whole(node, "add one", str(value + 1))
        case ast.Call(func=ast.Name(id="min" | "max" as name) as called):
            yield source.whole(called, f"swap {name}", _SWAPPED[name])


def _is_joined(node: ast.expr) -> bool:
    """Whether texts or lists are joined here, which no other operator does: any would end in a TypeError."""
    match node:
        case ast.BinOp(left=left, right=right):
            return _is_joined(left) or _is_joined(right)
        case ast.JoinedStr() | ast.List() | ast.Tuple() | ast.Constant(value=str() | bytes()):
            return True
    return False


def _of_statement(source: _Source, node: ast.AST, function: _Function | None) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield source.whole(node, "leave out call", "pass")
        case ast.AugAssign():
            yield source.whole(node, "leave out assignment", "pass")
        case ast.Raise() | ast.Continue() | ast.Break():
            yield source.whole(node, f"leave out {type(node).__name__.lower()}", "pass")
        case ast.Return(value=ast.expr()) if function is not None and _allows_none(function.returns):
            yield source.whole(node, "return None", "return None")


def _allows_none(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.BinOp(left=left, right=right):
            return _allows_none(left) or _allows_none(right)
        case ast.Constant(value=None):
            return True
    return False


def _conditions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            return [node.test]
        case ast.match_case(guard=ast.expr() as condition):
            return [condition]
        case ast.comprehension(ifs=conditions):
            return conditions
    return []
