"""The parts of the documentation that the product's own tables give: what stands between ``generated`` and ``end``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from spark_queue.cli.options import expressions_to_markdown, to_markdown
from spark_queue.expression.functions import accepted
from spark_queue.settings.registry import key_rows, option_rows
from tests import ways_in
from tests.docs import api, reference

_GENERATED = re.compile(r"(?P<begin><!-- generated: (?P<name>\w+) -->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)

#: Each part by the name that its mark gives.
PARTS: Mapping[str, Callable[[], str]] = {
    "python": api.api,
    "keys": lambda: to_markdown(key_rows()),
    "options": lambda: to_markdown(option_rows()),
    "expressions": lambda: expressions_to_markdown(accepted()),
    "values": ways_in.to_markdown,
    "errors": reference.errors,
    "figures": reference.figures,
    "rows": reference.rows,
    "views": reference.views,
    "verbs": reference.verbs,
    "metrics": reference.metrics,
    "lifecycle": reference.lifecycle,
    "sparks": reference.sparks,
}


def generated(text: str) -> str:
    """Return a page's text with every generated part as the product has it now."""
    return _GENERATED.sub(lambda found: f"{found['begin']}{PARTS[found['name']]()}{found['end']}", text)


def names_in(text: str) -> list[str]:
    """List the generated parts that a page has."""
    return [found["name"] for found in _GENERATED.finditer(text)]
