"""How texts are shown on the page."""

from __future__ import annotations

import pytest

from spark_queue.dashboard.formatting import coded


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run `sparkq verify J`, or `sparkq doctor J`.", "Run <code>sparkq verify J</code>, or <code>sparkq doctor J</code>."),
        ("no code", "no code"),
        # What users wrote is shown as they wrote it, also within code.
        ("`<b>` & 'x'", "<code>&lt;b&gt;</code> &amp; &#39;x&#39;"),
        # A backquote without another one, or with nothing between, begins no code.
        ("it's ` alone", "it&#39;s ` alone"),
        ("``", "``"),
        ("`a` and `b", "<code>a</code> and `b"),
    ],
)
def test_parts_in_backquotes_are_code_and_nothing_else_is_markup(text: str, shown: str) -> None:
    assert str(coded(text)) == shown
