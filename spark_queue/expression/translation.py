"""From sqlglot's tree to steps: a node that is not named here is refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatchmethod

import pyarrow as pa
from sqlglot import exp

from spark_queue.core.definitions.column_names import ColumnNames
from spark_queue.expression import operators
from spark_queue.expression.casts import cast, constant, target
from spark_queue.expression.functions import call, choose, concat, text, when
from spark_queue.expression.patterns import like, regular
from spark_queue.expression.steps import (
    BOOLEAN,
    STRING,
    VOID,
    Build,
    Steps,
    Value,
    element,
    invalid,
    kind_of,
    literal_of,
    unsupported,
)

#: Operators of two values that may be anything of their types.
_OPERATORS: Mapping[type, Build] = {
    exp.Add: operators.calculate,
    exp.Sub: operators.calculate,
    exp.Mul: operators.calculate,
    exp.Div: operators.divide,
    exp.IntDiv: operators.divide_whole,
    exp.Mod: operators.modulo,
    exp.DPipe: concat,
}

#: Operators that compare two values.
_COMPARISONS: Mapping[type[exp.Expression], Build] = {
    **dict.fromkeys(operators.COMPARISONS, operators.compare),
    exp.NullSafeEQ: operators.same,
    exp.NullSafeNEQ: operators.same,
}

#: Conditions that bind less tightly in Spark than in sqlglot when they stand beside a comparison without parentheses.
_BARE: tuple[type[exp.Expression], ...] = (
    exp.Is,
    exp.In,
    exp.Between,
    exp.Like,
    exp.Escape,
    exp.RegexpLike,
    exp.Not,
    *_COMPARISONS,
)


#: Numbers that are whole numbers of 8, 16, 32 or 64 bits with a sign only.
_BEYOND = frozenset(str(2 ** (bits - 1)) for bits in (8, 16, 32, 64))


class Translator:
    """Translates expressions over one message type into steps that they share."""

    def __init__(self, steps: Steps, columns: pa.Schema) -> None:
        self._steps = steps
        self._columns = columns
        self._names = ColumnNames(columns.names)

    @singledispatchmethod
    def translate(self, node: exp.Expression) -> Value:
        """Return the value of a node: one without a rule below is an operator, or refused."""
        if build := _OPERATORS.get(type(node)) or _COMPARISONS.get(type(node)):
            if type(node) in _COMPARISONS and any(isinstance(side, _BARE) for side in (node.this, node.expression)):
                raise unsupported(node, "it compares a condition without parentheses.", "Put parentheses around the condition.")
            return build(self._steps, node, self.translate(node.this), self.translate(node.expression))
        if isinstance(node, exp.Query | exp.Window | exp.Command | exp.DDL):
            raise unsupported(node, "it uses more than one message.", "Use columns of the message only.")
        if isinstance(node, exp.CurrentDate | exp.CurrentTimestamp | exp.CurrentUser):
            reason = "it depends on when or by whom it is evaluated, and traits are computed again after every restart."
            raise unsupported(node, reason, "Use published_at, or a column.")
        raise unsupported(
            node, f"'{node.sql('spark')[:60]}' ({type(node).__name__}) is not accepted.", "`sparkq options` lists what is."
        )

    @translate.register
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

    @translate.register
    def _literal(self, node: exp.Literal | exp.RawString) -> Value:
        if isinstance(node, exp.RawString) or node.is_string:
            return Value(kind=STRING, sql=text(node.this), literal=node.this)
        return operators.number(node, node.this)

    @translate.register
    def _null(self, _: exp.Null) -> Value:
        return Value(kind=VOID, sql="NULL")

    @translate.register
    def _boolean(self, node: exp.Boolean) -> Value:
        return Value(kind=BOOLEAN, sql=str(node.this).lower())

    @translate.register
    def _inside(self, node: exp.Paren) -> Value:
        return self.translate(node.this)

    @translate.register
    def _negative(self, node: exp.Neg) -> Value:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return operators.number(node, f"-{node.this.this}")
        if isinstance(node.this, exp.Cast) and isinstance(node.this.this, exp.Literal) and node.this.this.this in _BEYOND:
            # For Spark the sign of such a number belongs to it, for sqlglot not: without it the number is none of its type.
            next_step = f"Use CAST(-{node.this.this.this} AS {node.this.to.sql()})."
            raise unsupported(node, "the number without its sign does not fit its type.", next_step)
        return operators.negate(self._steps, node, self.translate(node.this))

    @translate.register
    def _joined(self, node: exp.And | exp.Or) -> Value:
        join = operators.both if isinstance(node, exp.And) else operators.either
        return join(self._steps, node, *(self.translate(each) for each in node.flatten(unnest=False)))

    @translate.register
    def _not(self, node: exp.Not) -> Value:
        value = self.translate(node.this)
        operators.check_conditions(node, value)
        return self._steps.apply(BOOLEAN, "NOT {0}", value)

    @translate.register
    def _is(self, node: exp.Is) -> Value:
        value = self.translate(node.this)
        wanted = node.expression
        if not isinstance(wanted, exp.Null | exp.Boolean):
            raise unsupported(node, "IS is not followed by NULL, TRUE or FALSE.", "Use = or <=>.")
        if isinstance(wanted, exp.Boolean):
            operators.check_conditions(node, value)
        sql = self._steps.add(f"{{0}} IS {wanted.sql()}", value.sql)
        return Value(kind=BOOLEAN, sql=sql, fails=value.fails)

    @translate.register
    def _in(self, node: exp.In) -> Value:
        if node.args.get("query") or not node.expressions:
            raise unsupported(node, "IN is not followed by a list.", "List the values.")
        value = self.translate(node.this)
        equal = []
        for each in node.expressions:
            other = self.translate(each)
            if other.fails is not None or (other.literal is None and other.kind != VOID):
                raise unsupported(each, "the list of IN holds more than literals.", "Use = and OR.")
            equal.append(operators.compare(self._steps, node, value, other, "="))
        return operators.either(self._steps, node, *equal)

    @translate.register
    def _between(self, node: exp.Between) -> Value:
        value, low, high = (self.translate(node.args[name]) for name in ("this", "low", "high"))
        above = operators.compare(self._steps, node, value, low, ">=")
        return operators.both(self._steps, node, above, operators.compare(self._steps, node, value, high, "<="))

    @translate.register
    def _like(self, node: exp.Like) -> Value:
        value, pattern = self._pattern(node)
        sign = "NOT LIKE" if node.args.get("negate") else "LIKE"
        quoted = Value(kind=STRING, sql=text(like(node, pattern)))
        return self._steps.apply(BOOLEAN, f"{{0}} {sign} {{1}} ESCAPE '\\'", value, quoted)

    @translate.register
    def _matches(self, node: exp.RegexpLike) -> Value:
        value, pattern = self._pattern(node)
        quoted = Value(kind=STRING, sql=text(regular(node, pattern)))
        return self._steps.apply(BOOLEAN, "regexp_matches({0}, {1})", value, quoted)

    def _pattern(self, node: exp.Expression) -> tuple[Value, str]:
        """Return the text that is looked at, and the pattern."""
        value = self.translate(node.this)
        pattern = literal_of(self.translate(node.expression), str, node, "the pattern")
        if value.kind not in (STRING, VOID):
            raise unsupported(node, f"{value.kind} is not text.", "Write the CAST to STRING that you mean.")
        return value, pattern

    @translate.register
    def _cast(self, node: exp.Cast) -> Value:
        kind = target(node)
        value = self.translate(node.this)
        if isinstance(value.literal, str) and value.kind == STRING and (found := constant(node, value.literal, kind)):
            return found
        given = cast(self._steps, node, value, kind)
        # TRY_CAST is NULL where CAST fails; a failure of its argument stays one.
        return Value(kind=kind, sql=given.sql, fails=value.fails) if isinstance(node, exp.TryCast) else given

    @translate.register
    def _case(self, node: exp.Case) -> Value:
        subject = None if node.this is None else self.translate(node.this)
        cases = []
        for branch in node.args["ifs"]:
            condition = self.translate(branch.this)
            if subject is not None:
                condition = operators.compare(self._steps, node, subject, condition, "=")
            cases.append((condition, self.translate(branch.args["true"])))
        default = node.args.get("default")
        return choose(self._steps, node, cases, self.translate(default) if default else Value(kind=VOID, sql="NULL"))

    @translate.register
    def _if(self, node: exp.If) -> Value:
        negative = node.args.get("false")
        if negative is None:
            raise invalid(node, "if has no third argument.", "Call it as if(condition, value, other).")
        return when(self._steps, node, *(self.translate(part) for part in (node.this, node.args["true"], negative)))

    @translate.register
    def _call(self, node: exp.Anonymous) -> Value:
        if any(isinstance(each, exp.Star | exp.Lambda) for each in node.expressions):
            raise call_refused(node)
        return call(self._steps, node, str(node.this), [self.translate(each) for each in node.expressions])

    @translate.register
    def _item(self, node: exp.Bracket) -> Value:
        if len(node.expressions) != 1:
            raise invalid(node, "brackets hold one number or key.", "Write column[0] or column['key'].")
        return element(self._steps, node, self.translate(node.this), self.translate(node.expressions[0]), one_based=False)

    @translate.register
    def _dot(self, node: exp.Dot) -> Value:
        if not isinstance(node.expression, exp.Identifier):
            raise unsupported(node, "a name is expected after the point.", "Write column.field.")
        return self._field(node, self.translate(node.this), node.expression.name)


def call_refused(node: exp.Expression) -> Exception:
    """Make the refusal of a call with an argument that no function here has, by the function where that explains more."""
    try:
        call(Steps(), node, str(node.this), [])
    except Exception as refused:  # noqa: BLE001 - any error about the name is the better reason
        return refused
    return unsupported(node, f"{node.this} is called with * or ->.", "Give values.")
