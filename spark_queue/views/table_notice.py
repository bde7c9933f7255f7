"""The sentence about a followed table: how far it was read, and what was passed over."""

from __future__ import annotations

from spark_queue.errors import counted


def table_notice(
    journal: str,
    message_type: str,
    *,
    table: str,
    version: int,
    behind: int | None,
    is_set_aside: bool,
    changes: int,
    rows_passed: int,
) -> str:
    """Return how far the table was read that a message type of a journal, by its path, follows, and what was passed over there."""
    place = "" if behind is None else ", the newest" if behind == 0 else f", {behind:,} behind the newest"
    told = f"Message type '{message_type}' follows table '{table}' and has read it up to version {version}"
    aside = ", and is set aside" if is_set_aside else ""
    passed = (
        f" {changes:,} commit(s) that changed rows were passed over, with {rows_passed:,} row(s) at most "
        f"that did not enter: `sparkq peek {journal} --view table_changes` shows them."
    )
    return counted(f"{told}{place}{aside}.{passed if changes else ''}")
