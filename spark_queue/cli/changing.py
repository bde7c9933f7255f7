"""The verbs that change what one queue does or holds."""

from __future__ import annotations

from msgspec.structs import asdict

from spark_queue.cli.output import out, progress, show_json
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


def unsubscribe(
    path: str, queue: str, subscription: str, storage: list[str] | None, coordinator: str | None, *, as_json: bool
) -> None:
    """End a subscription."""
    open_target(path, storage, coordinator).queue(queue).unsubscribe(subscription)
    text = f"Subscription '{subscription}' of queue '{queue}' has ended; what it held is back."
    _show({"queue": queue, "subscription": subscription}, text, as_json=as_json)


def settle(
    path: str,
    queue: str,
    storage: list[str] | None,
    coordinator: str | None,
    *,
    where: str,
    outcome: str,
    retry_after: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give an outcome to what matches a filter."""
    target = open_target(path, storage, coordinator).queue(queue)
    counts = asdict(target.settle(where=where, outcome=outcome, retry_after=retry_after, dry_run=dry_run))
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing matched"
    text = f"Queue '{queue}': it would be {said}. Nothing was changed." if dry_run else f"Queue '{queue}': {said}."
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
