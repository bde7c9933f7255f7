"""The verbs that change what one queue does or holds."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from msgspec.structs import asdict

from spark_queue.cli.output import out, progress, show_json
from spark_queue.cli.target import open_target
from spark_queue.core.records import Outcome


def pause(path: str, queue: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool) -> None:
    """Let a queue grant nothing."""
    open_target(path, storage, coordinator).queue(queue).pause()
    text = f"Queue '{queue}' is paused: it grants nothing until `sparkq unpause`. What is leased goes on."
    _show({"queue": queue, "paused": True}, text, as_json=as_json)


def unpause(path: str, queue: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool) -> None:
    """Let a queue grant again."""
    open_target(path, storage, coordinator).queue(queue).unpause()
    _show({"queue": queue, "paused": False}, f"Queue '{queue}' grants again.", as_json=as_json)


def unsubscribe(
    path: str, queue: str, subscription: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool
) -> None:
    """End a subscription."""
    open_target(path, storage, coordinator).queue(queue).unsubscribe(subscription)
    text = f"Subscription '{subscription}' of queue '{queue}' has ended; what it held is back."
    _show({"queue": queue, "subscription": subscription}, text, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is said of the messages that match, as `Queue.settle` takes it."""

    outcome: str
    retry_after: str | None
    error: str | None


def settle(
    path: str,
    queue: str,
    storage: list[str] | None,
    coordinator: str | None,
    *,
    where: str,
    said: Said,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give an outcome to what matches a filter."""
    target = open_target(path, storage, coordinator).queue(queue)
    counts = asdict(target.settle(where=where, dry_run=dry_run, **dataclasses.asdict(said)))
    nothing = "nothing that matches is leased" if said.outcome == Outcome.CANCEL else "nothing matched"
    done = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    text = f"Queue '{queue}': {'it would be ' if dry_run and done else ''}{done or nothing}."
    text = f"{text} Nothing was changed." if dry_run else text
    _show({"queue": queue, **_marked(counts, dry_run=dry_run)}, text, as_json=as_json)


def purge(
    path: str,
    queue: str,
    storage: list[str] | None,
    coordinator: str | None,
    *,
    where: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove what nobody has leased."""
    done = open_target(path, storage, coordinator).queue(queue).purge(where, dry_run=dry_run)
    if dry_run:
        text = f"Queue '{queue}': {done.purged:,} messages would be purged, {done.leased:,} are leased. Nothing was changed."
    else:
        text = f"Queue '{queue}': {done.purged:,} messages were purged, {done.leased:,} are leased and stay."
    _show({"queue": queue, **_marked(asdict(done), dry_run=dry_run)}, text, as_json=as_json)


def redrive(
    path: str,
    queue: str,
    storage: list[str] | None,
    coordinator: str | None,
    *,
    where: str | None,
    per_second: int | None,
    as_json: bool,
) -> None:
    """Give dead letters back to their queue."""
    with progress(counted=True) as bar:
        task = bar.add_task("redriven", total=None)
        done = (
            open_target(path, storage, coordinator)
            .queue(queue)
            .redrive(where, per_second=per_second, on_progress=lambda count, total: bar.update(task, completed=count, total=total))
        )
    text = f"Queue '{queue}': {done.redriven:,} of {done.requested:,} dead letters are back, {done.skipped:,} were skipped."
    _show({"queue": queue, **asdict(done)}, text, as_json=as_json)


def _marked(counts: dict[str, object], *, dry_run: bool) -> dict[str, object]:
    return {"dry_run": True, **counts} if dry_run else counts


def _show(value: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(value)
    else:
        out.print(text, markup=False, soft_wrap=True)
