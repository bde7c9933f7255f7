"""From sqlglot's tree to steps: what is not named here is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
from sqlglot import exp

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.expression import operators
from spark_queue.expression.casts import cast, constant, target
from spark_queue.expression.choices import choose
from spark_queue.expression.functions import call, text
from spark_queue.expression.kinds import BOOLEAN, STRING, VOID, kind_of
from spark_queue.expression.nested import element
from spark_queue.expression.patterns import like, regular
from spark_queue.expression.steps import Steps, Value, literal_of
from spark_queue.expression.syntax import invalid, unsupported

#: What every message has beside its type's columns, and expressions may use (DESIGN 8).
ENVELOPE = ("topic", "publisher", "sequence", "published_at")

#: Conditions that bind less tightly in Spark than in sqlglot when they stand beside a comparison without parentheses.
_BARE: tuple[type[exp.Expression], ...] = (
    exp.Is,
    exp.In,
    exp.Between,
    exp.Like,
    exp.Escape,
    exp.RegexpLike,
    exp.Not,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    *operators.COMPARISONS,
)


class Translator:
    """Translates expressions over one message type into steps that they share.

    Parameters
    ----------
    steps : Steps
        Where the steps are added.
    columns : pa.Schema
        The message type's columns and `ENVELOPE`.
    """

    def __init__(self, steps: Steps, columns: pa.Schema) -> None:
        self._steps = steps
        self._columns = columns
        self._names = ColumnNames(columns.names)

    def translate(self, node: exp.Expression) -> Value:
        """Return the value of a node."""
        for kind in type(node).__mro__:
            if kind in self._RULES:
                return self._RULES[kind](self, node)
        if isinstance(node, exp.Query | exp.Window | exp.Command | exp.DDL):
            raise unsupported(node, "it looks beyond one message.", "Use columns of the message only.")
        if isinstance(node, exp.CurrentDate | exp.CurrentTimestamp | exp.CurrentUser):
            reason = "it depends on when or by whom it is asked, and facts are computed again after every restart."
            raise unsupported(node, reason, "Use published_at, or a column.")
        raise unsupported(
            node, f"'{node.sql('spark')[:60]}' ({type(node).__name__}) is not accepted.", "`sparkq options` lists what is."
        )

    def _column(self, node: exp.Column) -> Value:
        if isinstance(node.this, exp.Star):
            raise unsupported(node, "it names all columns.", "Name one.")
        names = [part.name for part in node.parts]
        value = self._named(node, names[0])
        for name in names[1:]:
            value = self._field(node, value, name)
        return value

    def _named(self, node: exp.Expression, name: str) -> Value:
        column = self._names.find(name)
        if column is None:
            raise invalid(node, f"there is no column '{name}'.{self._names.nearest(name)}", f"Columns: {self._names}.")
        return Value(kind=kind_of(self._columns.field(column).type), sql=self._steps.column(column))

    def _field(self, node: exp.Expression, value: Value, name: str) -> Value:
        if value.kind.name != "STRUCT":
            raise invalid(
                node, f"{value.kind} has no field '{name}'.", "Only a STRUCT has fields; JSON is read by get_json_object."
            )
        kinds = dict(value.kind.parts)
        names = ColumnNames(kinds)
        part = names.find(name)
        if part is None:
            raise invalid(node, f"there is no field '{name}'.{names.nearest(name)}", f"Fields: {names}.")
        return self._steps.apply(kinds[part], f"struct_extract({{0}}, {text(part).replace('{', '{{').replace('}', '}}')})", value)

    def _literal(self, node: exp.Expression) -> Value:
        if node.args["is_string"]:
            return Value(kind=STRING, sql=text(node.this), literal=node.this)
        return self._number(node, node.this)

    def _number(self, node: exp.Expression, written: str) -> Value:
        value = operators.number(written)
        if value is None:
            raise unsupported(node, f"{written} has too many digits.", "Write at most 38, or a DOUBLE such as 1e40.")
        return value

    def _raw(self, node: exp.Expression) -> Value:
        return Value(kind=STRING, sql=text(node.this), literal=node.this)

    def _null(self, node: exp.Expression) -> Value:
        del node
        return Value(kind=VOID, sql="NULL")

    def _boolean(self, node: exp.Expression) -> Value:
        return Value(kind=BOOLEAN, sql=str(node.this).lower())

    def _inside(self, node: exp.Expression) -> Value:
        return self.translate(node.this)

    def _negative(self, node: exp.Expression) -> Value:
        if isinstance(node.this, exp.Literal) and not node.this.args["is_string"]:
            return self._number(node, f"-{node.this.this}")
        return operators.negate(self._steps, node, self.translate(node.this))

    def _two(self, node: exp.Expression) -> tuple[Value, Value]:
        return self.translate(node.this), self.translate(node.expression)

    def _arithmetic(self, node: exp.Expression) -> Value:
        return operators.calculate(self._steps, node, operators.ARITHMETIC[type(node)], *self._two(node))

    def _divide(self, node: exp.Expression) -> Value:
        return operators.divide(self._steps, node, *self._two(node))

    def _divide_whole(self, node: exp.Expression) -> Value:
        return operators.divide_whole(self._steps, node, *self._two(node))

    def _modulo(self, node: exp.Expression) -> Value:
        return operators.modulo(self._steps, node, *self._two(node))

    def _compare(self, node: exp.Expression) -> Value:
        self._check_parentheses(node)
        return operators.compare(self._steps, node, operators.COMPARISONS[type(node)], *self._two(node))

    def _same(self, node: exp.Expression) -> Value:
        self._check_parentheses(node)
        return operators.same(self._steps, node, *self._two(node), wanted=isinstance(node, exp.NullSafeEQ))

    def _check_parentheses(self, node: exp.Expression) -> None:
        if any(isinstance(side, _BARE) for side in (node.this, node.expression)):
            raise unsupported(node, "it compares a condition without parentheses.", "Put parentheses around the condition.")

    def _and(self, node: exp.Expression) -> Value:
        return operators.both(self._steps, *self._conditions(node))

    def _or(self, node: exp.Expression) -> Value:
        return operators.either(self._steps, *self._conditions(node))

    def _conditions(self, node: exp.Expression) -> tuple[Value, Value]:
        one, other = self._two(node)
        return operators.condition(node, one), operators.condition(node, other)

    def _not(self, node: exp.Expression) -> Value:
        value = operators.condition(node, self.translate(node.this))
        return self._steps.apply(BOOLEAN, "NOT {0}", value)

    def _is(self, node: exp.Expression) -> Value:
        value = self.translate(node.this)
        wanted = node.expression
        if not isinstance(wanted, exp.Null | exp.Boolean):
            raise unsupported(node, "IS is followed by something else than NULL, TRUE or FALSE.", "Use = or <=>.")
        if isinstance(wanted, exp.Boolean):
            operators.condition(node, value)
        sql = self._steps.add(f"{{0}} IS {wanted.sql()}", value.sql)
        return Value(kind=BOOLEAN, sql=sql, fails=value.fails)

    def _in(self, node: exp.Expression) -> Value:
        if node.args.get("query") or not node.expressions:
            raise unsupported(node, "IN is not followed by a list.", "List the values.")
        value = self.translate(node.this)
        found: Value | None = None
        for each in node.expressions:
            other = self.translate(each)
            if other.fails is not None or (other.literal is None and other.kind != VOID):
                raise unsupported(each, "the list of IN holds something else than literals.", "Use = and OR.")
            equal = operators.compare(self._steps, node, "=", value, other)
            found = equal if found is None else operators.either(self._steps, found, equal)
        assert found is not None
        return found

    def _between(self, node: exp.Expression) -> Value:
        value, low, high = (self.translate(node.args[name]) for name in ("this", "low", "high"))
        above = operators.compare(self._steps, node, ">=", value, low)
        return operators.both(self._steps, above, operators.compare(self._steps, node, "<=", value, high))

    def _like(self, node: exp.Expression) -> Value:
        value, pattern = self._two(node)
        written = like(node, str(literal_of(pattern, str, node, "the pattern")))
        if value.kind not in (STRING, VOID):
            raise unsupported(node, f"{value.kind} is no text.", "Write the CAST to STRING that you mean.")
        sign = "NOT LIKE" if node.args.get("negate") else "LIKE"
        quoted = text(written)
        return self._steps.apply(BOOLEAN, f"{{0}} {sign} {{1}} ESCAPE '\\'", value, Value(kind=STRING, sql=quoted))

    def _matches(self, node: exp.Expression) -> Value:
        value, pattern = self._two(node)
        written = regular(node, str(literal_of(pattern, str, node, "the pattern")))
        if value.kind not in (STRING, VOID):
            raise unsupported(node, f"{value.kind} is no text.", "Write the CAST to STRING that you mean.")
        return self._steps.apply(BOOLEAN, "regexp_matches({0}, {1})", value, Value(kind=STRING, sql=text(written)))

    def _concat(self, node: exp.Expression) -> Value:
        return call(self._steps, node, "concat", list(self._two(node)))

    def _cast(self, node: exp.Expression) -> Value:
        assert isinstance(node, exp.Cast)
        kind = target(node)
        value = self.translate(node.this)
        if isinstance(value.literal, str) and value.kind == STRING and (found := constant(node, value.literal, kind)):
            return found
        given = cast(self._steps, node, value, kind)
        # TRY_CAST is NULL where CAST fails; what its argument fails on stays a failure.
        return Value(kind=kind, sql=given.sql, fails=value.fails) if isinstance(node, exp.TryCast) else given

    def _case(self, node: exp.Expression) -> Value:
        subject = None if node.this is None else self.translate(node.this)
        cases = []
        for branch in node.args["ifs"]:
            condition = self.translate(branch.this)
            if subject is not None:
                condition = operators.compare(self._steps, node, "=", subject, condition)
            cases.append((condition, self.translate(branch.args["true"])))
        default = node.args.get("default")
        return choose(self._steps, node, cases, self.translate(default) if default else Value(kind=VOID, sql="NULL"))

    def _if(self, node: exp.Expression) -> Value:
        negative = node.args.get("false")
        if negative is None:
            raise invalid(node, "if has no third argument.", "Call it as if(condition, value, other).")
        default = self.translate(negative)
        return choose(self._steps, node, [(self.translate(node.this), self.translate(node.args["true"]))], default)

    def _call(self, node: exp.Expression) -> Value:
        if any(isinstance(each, exp.Star | exp.Lambda) for each in node.expressions):
            raise call_refused(node)
        return call(self._steps, node, str(node.this), [self.translate(each) for each in node.expressions])

    def _item(self, node: exp.Expression) -> Value:
        if len(node.expressions) != 1:
            raise invalid(node, "brackets hold one number or key.", "Write column[0] or column['key'].")
        return element(self._steps, node, self.translate(node.this), self.translate(node.expressions[0]), one_based=False)

    def _dot(self, node: exp.Expression) -> Value:
        if not isinstance(node.expression, exp.Identifier):
            raise unsupported(node, "a name is expected after the point.", "Write column.field.")
        return self._field(node, self.translate(node.this), node.expression.name)

    _RULES: ClassVar[dict[type, Callable[[Any, Any], Value]]] = {
        exp.Column: _column,
        exp.Literal: _literal,
        exp.RawString: _raw,
        exp.Null: _null,
        exp.Boolean: _boolean,
        exp.Paren: _inside,
        exp.Neg: _negative,
        **dict.fromkeys(operators.ARITHMETIC, _arithmetic),
        exp.Div: _divide,
        exp.IntDiv: _divide_whole,
        exp.Mod: _modulo,
        **dict.fromkeys(operators.COMPARISONS, _compare),
        exp.NullSafeEQ: _same,
        exp.NullSafeNEQ: _same,
        exp.And: _and,
        exp.Or: _or,
        exp.Not: _not,
        exp.Is: _is,
        exp.In: _in,
        exp.Between: _between,
        exp.Like: _like,
        exp.RegexpLike: _matches,
        exp.DPipe: _concat,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.Case: _case,
        exp.If: _if,
        exp.Anonymous: _call,
        exp.Bracket: _item,
        exp.Dot: _dot,
    }


def call_refused(node: exp.Expression) -> Exception:
    """Make the refusal of a call with an argument that no function here takes, by the function where that tells more."""
    try:
        call(Steps(), node, str(node.this), [])
    except Exception as refused:  # noqa: BLE001 - whatever it says of the name is the better reason
        return refused
    return unsupported(node, f"{node.this} is called with * or ->.", "Give values.")
