"""Expressions: Spark SQL over one message, translated once, evaluated by DuckDB on Arrow (DESIGN 8).

The meaning of an expression is that of Spark 4.2 with ANSI mode and session time zone UTC. sqlglot only reads the text; every
operator and function is translated by a table here, with its types, and a part that is in no table is refused when the expression
is created: better no expression than one that quietly means something else.

Three rules hold it together.

1. **One message, and nothing else.** No other rows, no clock, no chance: traits are computed again after every restart, and
   must come out the same.
2. **Nothing raises.** Where Spark would raise for a row (ANSI), a column beside the value says so. Such a message matches
   nothing, ranks lowest, is no barrier, and is counted; its neighbours are never disturbed.
3. **Spark's order of evaluation.** A part that Spark does not evaluate (after a false condition, after a NULL, in a branch not
   taken) cannot fail here either.

`steps` is the computation, with the types, the reading of the text and refusals; `operators` and `functions` are the tables;
`translation` walks the tree; `program` turns the value into that of a filter or priority, and evaluates. This package loads neither
sqlglot nor DuckDB: most queues have no expression.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Expressions of a condition: rows where it fails or is NULL do not match.
FILTER = "filter"
BARRIER = "barrier"
#: Any number, or a text that reads as one, as unsigned 64-bit: fractions are cut off, and larger ones are the largest. NULL,
#: NaN, negative numbers and other texts have none, and rank lowest (R66).
PRIORITY = "priority"
#: Any plain value; equal values give equal 64-bit hashes. NULL is no key.
ORDER_KEY = "order_key"


class Wanted(NamedTuple):
    """An expression and its purpose, a key of `program.PURPOSES`."""

    text: str
    purpose: str


class Found(NamedTuple):
    """The values of an expression, row by row."""

    #: Booleans for conditions, unsigned 64-bit numbers for the others.
    values: NDArray[Any]
    #: Where there is a value: everywhere for conditions.
    valid: NDArray[np.bool_]
    #: Where Spark would raise; there is no value, or false.
    failed: NDArray[np.bool_]
