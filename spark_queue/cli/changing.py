"""The verbs that change what one queue does or holds."""

from __future__ import annotations

from spark_queue.cli.output import out, show_json
from spark_queue.cli.target import open_target


def pause(path: str, queue: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool) -> None:
    """Let a queue grant nothing."""
    open_target(path, storage, coordinator).queue(queue).pause()
    text = f"Queue '{queue}' is paused: it grants nothing until `sparkq unpause`. What is leased goes on."
    _show({"queue": queue, "paused": True}, text, as_json=as_json)


def unpause(path: str, queue: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool) -> None:
    """Let a queue grant again."""
    open_target(path, storage, coordinator).queue(queue).unpause()
    _show({"queue": queue, "paused": False}, f"Queue '{queue}' grants again.", as_json=as_json)


def _show(value: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(value)
    else:
        out.print(text, markup=False, soft_wrap=True)
