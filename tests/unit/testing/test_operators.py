"""Operators change one thing of a source, where it says something that a test can notice."""

from __future__ import annotations

import pytest

from tests.mutants.operators import changes

PATH = "spark_queue/core/x.py"


def results(text: str) -> dict[str, list[str]]:
    """Return what becomes of a source, by operator."""
    found: dict[str, list[str]] = {}
    for change in changes(PATH, text):
        found.setdefault(change.operator, []).append(change.applied(text))
    return found


@pytest.mark.parametrize(
    ("before", "operator", "after"),
    [
        ("a < b", "swap <", "a <= b"),
        ("a <= b", "swap <=", "a < b"),
        ("a > b", "swap >", "a >= b"),
        ("a >= b", "swap >=", "a > b"),
        ("a == b", "swap ==", "a != b"),
        ("a != b", "swap !=", "a == b"),
        ("a in b", "swap in", "a not in b"),
        ("a not  in b", "swap not in", "a in b"),
        ("a is b", "swap is", "a is not b"),
        ("a is not b", "swap is not", "a is b"),
        ("a is (not b)", "swap is", "a is not (not b)"),
        ("a < b > c", "swap >", "a < b >= c"),
        ("((a)  # < c\n < (b))", "swap <", "((a)  # < c\n <= (b))"),
        ("a and b", "swap and", "a or b"),
        ("a or b", "swap or", "a and b"),
        ("f(not a, b)", "drop not", "f(a, b)"),
        ("not(a)", "drop not", "(a)"),
        ("a + b", "swap +", "a - b"),
        ("a - b", "swap -", "a + b"),
        ("a & b", "swap &", "a | b"),
        ("a | b", "swap |", "a & b"),
        ("x = 1_000", "add one", "x = 1001"),
        ("x = True", "swap True", "x = False"),
        ("x = False", "swap False", "x = True"),
        ("x = min(a)", "swap min", "x = max(a)"),
        ("x = max(a, key=b)", "swap max", "x = min(a, key=b)"),
        ("if a: b", "always true", "if True: b"),
        ("if a: b", "always false", "if False: b"),
        ("while a: b", "always true", "while True: b"),
        ("x = b if (a) else c", "always false", "x = b if (False) else c"),
        ("x = [a for a in b if a]", "always true", "x = [a for a in b if True]"),
        ("match a:\n case b if c: d", "always false", "match a:\n case b if False: d"),
        ("f(\n a)  # b", "leave out call", "pass  # b"),
        ("async def f():\n await g()", "leave out call", "async def f():\n pass"),
        ("a |= b; c", "leave out assignment", "pass; c"),
        ("if a: raise b from c", "leave out raise", "if a: pass"),
        ("for a in b: continue", "leave out continue", "for a in b: pass"),
        ("for a in b: break", "leave out break", "for a in b: pass"),
        ("def f() -> A | None:\n return (a\n  .b)", "return None", "def f() -> A | None:\n return None"),
        ("def f() -> A | None:\n if a: return b", "return None", "def f() -> A | None:\n if a: return None"),
        ("async def f() -> A | None: return a", "return None", "async def f() -> A | None: return None"),
        ("def f() -> None | A:\n return a", "return None", "def f() -> None | A:\n return None"),
        ("def f(a=b < c): d", "swap <", "def f(a=b <= c): d"),
        ("def f(*, e, a=b < c): d", "swap <", "def f(*, e, a=b <= c): d"),
        ("class A:\n b: int = c + d", "swap +", "class A:\n b: int = c - d"),
        ("x = 'ä€😀'; a < b", "swap <", "x = 'ä€😀'; a <= b"),
    ],
)
def test_an_operator_changes_one_thing(before: str, operator: str, after: str) -> None:
    assert results(before)[operator] == [after]


def test_each_part_of_a_chain_is_changed_on_its_own() -> None:
    assert results("a and b and c") == {"swap and": ["a or b and c", "a and b or c"]}
    assert results("a < b < c") == {"swap <": ["a <= b < c", "a < b <= c"]}


def test_what_two_operators_would_do_is_done_once() -> None:
    # The other one leaves it as it is, and is not drawn.
    assert results("while True: f") == {"swap True": ["while False: f"], "always true": ["while True: f"]}


@pytest.mark.parametrize(
    "text",
    [
        '"""a < b"""',
        "x = f'{a + 1:{b - 1}}'",
        "x = 'a' + b",
        "x = a + f'{b}' + c",
        "x = a + (b + 'c')",
        "x = a + [b]",
        "def f(a: Literal[1] = b) -> A | B: c",
        "x: Annotated[int, 1] = a",
        "x: int",
        "x: ClassVar[int] = 1",
        "x: ClassVar = 1",
        "X: TypeAlias = A | B",
        "__all__ = ['a', *(b + c)]",
        "if TYPE_CHECKING:\n x = 1",
        "if typing.TYPE_CHECKING:\n x = 1",
        "_LOG.info('a', b + 1)",
        "logging.getLogger(a).warning('a', b + 1)",
        "assert a < 1",
        "x = isinstance(a, B | C)",
        "x = zip(a, b, strict=True)",
        "x = int(a.b or 0)",
        "@dataclass(frozen=True)\nclass A(Struct, frozen=True): a",
        "@cache(1)\ndef f(): a",
        "def f() -> A:\n return a",
        "def f() -> list[A | None]:\n return a",
        "def f() -> A | None:\n def g() -> A:\n  return a",
        "def f() -> A | None:\n return",
        "x = 1.5",
        "x = None",
        "x = a * b",
    ],
)
def test_nothing_is_changed_that_no_test_owes_an_answer_to(text: str) -> None:
    assert results(text) == {}


def test_what_only_looks_like_that_is_changed() -> None:
    assert results("_log.append(a)") == {"leave out call": ["pass"]}
    assert results("logins.info(a)") == {"leave out call": ["pass"]}
    assert results("catalogue.info(a)") == {"leave out call": ["pass"]}
    assert results("x = isinstance(a or b, C)") == {"swap or": ["x = isinstance(a and b, C)"]}
    assert results("x = int(a or 1)")["add one"] == ["x = int(a or 2)"]
    assert results("x = f(a or 0)")["add one"] == ["x = f(a or 1)"]
    assert results("x = f(strictly=True)") == {"swap True": ["x = f(strictly=False)"]}
