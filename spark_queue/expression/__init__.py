"""Expressions: Spark SQL over one message, translated once, evaluated by DuckDB on Arrow (DESIGN 8).

What an expression means is what Spark 4.2 says with ANSI mode and session time zone UTC. sqlglot only reads the text; every
operator and function is translated by a table here, with its types, and what is in no table is refused when the expression is
created: better no expression than one that quietly means something else.

Three rules hold it together.

1. **One message, and nothing else.** No other rows, no clock, no chance: traits are computed again after every restart, and
   must come out the same.
2. **Nothing raises.** Where Spark would raise for a row (ANSI), a column beside the value says so. Such a message matches
   nothing, ranks lowest, is no barrier, and is counted; its neighbours are never disturbed.
3. **Spark's order of evaluation.** What Spark does not evaluate (after a false condition, after a NULL, in a branch not taken)
   cannot fail here either.

`kinds` are the types; `syntax` reads and refuses; `steps` is the computation; `casts`, `operators`, `functions`, `patterns` are the
tables; `translation` walks the tree; `purposes` says what a filter or priority makes of the value; `program` evaluates.
"""

from __future__ import annotations

from spark_queue.expression.functions import accepted
from spark_queue.expression.program import BARRIER, FILTER, ORDER_KEY, PRIORITY, Found, Program, Wanted, translate

__all__ = ["BARRIER", "FILTER", "ORDER_KEY", "PRIORITY", "Found", "Program", "Wanted", "accepted", "translate"]
