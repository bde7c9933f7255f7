"""``sparkq doctor``: try the needs of queues on this host, rather than print versions."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import cast

from spark_queue import session
from spark_queue.cli.certificates import try_certificates
from spark_queue.cli.followed_tables import try_tables
from spark_queue.cli.output import draw, progress, say, show_json, table
from spark_queue.cli.store_rights import Finding, try_rights
from spark_queue.client.coordinator_client import call_once
from spark_queue.client.journal import Journal
from spark_queue.clock import SystemClock
from spark_queue.errors import ConfigError, CoordinatorError, SparkQueueError, check_text
from spark_queue.journal import snapshot
from spark_queue.journal.message_table import open_messages
from spark_queue.journal.message_upkeep import unnamed_files
from spark_queue.journal.open import open_journal
from spark_queue.journal.reader import list_blocks, open_with_definitions
from spark_queue.protocol import user_files, wire
from spark_queue.protocol.discovery import read_advertisement
from spark_queue.protocol.host import location_of
from spark_queue.session import worker_python
from spark_queue.source import checkpoint_place
from spark_queue.views import state_at
from spark_queue.views.journal_view import repeated_entries

#: Python versions that are tested.
PYTHON_VERSIONS = ((3, 11), (3, 13))

#: The packages that the queue itself imports, and those of the Spark side; cli never imports the latter.
_BASE = ("pyarrow", "deltalake", "obstore", "pyroaring", "msgspec", "re2")
_SPARK = {"pyspark": tuple(f"{minor}." for minor in session.LACKS), "pandas": ("2.",)}

#: Most milliseconds that a clock may differ from the store's, or lie behind the log, without a finding.
CLOCK_SLACK_MS = 60_000
_DAY_MS = 86_400_000

_COMMAND_S = 60

#: The time for the scratch coordinator to answer that it stops, in seconds.
STOP_S = 5.0

#: The time of a recovery from which doctor mentions it, in seconds.
RECOVERY_S = 10


def doctor(named: Journal | None, *, fetch: bool, checkpoint: str | None, as_json: bool) -> None:
    """Try this host, the journal that is named or a scratch one, and a query's checkpoint; exits 1 when something fails."""
    if checkpoint is not None:
        check_text(checkpoint, key="checkpoint", where="the arguments")
    findings: list[dict[str, str]] = []
    with nullcontext(named) if named is not None else _scratch() as journal, progress(counted=True) as bar:
        checks = _checks(journal, fetch=fetch)
        if checkpoint is not None:
            checks["checkpoint"] = partial(_checkpoint, checkpoint)
        task = bar.add_task("trying", total=len(checks))
        for name, check in checks.items():
            try:
                finding = check()
            except SparkQueueError as refusal:
                finding = Finding(result="failed", found=refusal.code, advice=str(refusal))
            findings.append({"check": name, **asdict(finding)})
            bar.advance(task)
    if as_json:
        show_json(findings)
    else:
        draw(table(findings, ("check", "result", "found"), cut=False))
        for each in findings:
            if each["advice"]:
                say(f"{each['check']}: {each['advice']}")
    if any(each["result"] == "failed" for each in findings):
        sys.exit(1)


def _checks(journal: Journal, *, fetch: bool) -> dict[str, Callable[[], Finding]]:
    """Return every trial by its name: those of this host, then those of the journal."""
    return {
        "python": _python,
        "packages": _packages,
        "spark packages": _spark_packages,
        "delta jars": partial(_delta_jars, fetch=fetch),
        "java": _java,
        "spark's python": _spark_python,
        "token": partial(_token, journal),
        "store": partial(_store, journal),
        "rights": partial(try_rights, journal),
        "clock": partial(_clock, journal),
        "control log": partial(_control_log, journal),
        "message files": partial(_files, journal),
        "queues": partial(_queues, journal),
        "followed tables": partial(try_tables, journal),
        # Before the coordinator, which is started where none runs.
        "peers": partial(_peers, journal),
        "coordinator": partial(_coordinator, journal),
        "certificates": partial(try_certificates, journal),
    }


@contextmanager
def _scratch() -> Iterator[Journal]:
    """Yield a journal that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="sparkq-doctor-") as directory:
        journal = Journal.create(
            f"{directory}/journal", {"message_types": {"json": {"topics": ["TRIAL"]}}, "queues": {"TRIAL": {}}}
        )
        journal_id = journal.journal_id()
        try:
            yield journal
        finally:
            # That none was started is fine.
            with suppress(SparkQueueError):
                call_once(journal.store, journal_id, wire.Stop(), start=False, timeout_s=STOP_S)
            _log(journal, journal_id).unlink(missing_ok=True)
            (user_files.runtime_directory() / f"{journal_id}.lock").unlink(missing_ok=True)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    low, high = PYTHON_VERSIONS
    if not low <= sys.version_info[:2] <= high:
        return Finding(result="failed", found=version, advice="Use Python 3.11, 3.12 or 3.13.")
    return Finding(result="ok", found=f"{version} at {sys.executable}")


def _packages() -> Finding:
    for name in _BASE:
        try:
            importlib.import_module(name)
        except ImportError as reason:
            return Finding(result="failed", found=f"{name}: {reason}", advice="Install spark-queue with its dependencies.")
    return Finding(result="ok", found=f"{len(_BASE)} imported")


def _spark_packages() -> Finding:
    found = {name: _version(name) for name in _SPARK}
    wrong = [name for name, wanted in _SPARK.items() if not (found[name] or "").startswith(wanted)]
    text = ", ".join(f"{name} {version or 'missing'}" for name, version in found.items())
    if wrong:
        low, *_, high = session.LACKS
        advice = f"Spark jobs need pyspark {low} to {high} and pandas 2: install spark-queue[spark]. Everything else works without."
        return Finding(result="warning", found=text, advice=advice)
    return Finding(result="ok", found=text, advice=" ".join(session.LACKS[session.spark_minor()]))


def _delta_jars(*, fetch: bool) -> Finding:
    if not fetch and (_version("pyspark") is None or not session.has_delta()):
        return Finding(result="ok", found="not needed: pyspark is missing, or Delta is not built for its version")
    jars = session.jars() if fetch else session.found()
    if not jars:
        advice = "`sparkq doctor --fetch` fetches them now; otherwise the first session does."
        return Finding(result="warning", found=f"not yet in {session.directory()}", advice=advice)
    return Finding(result="ok", found=f"{len(jars)} in {session.directory()}")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    try:
        path, version = session.java()
    except ConfigError as refusal:
        return Finding(result="warning", found=refusal.code, advice=f"{refusal} The queue itself needs no Java.")
    return Finding(result="ok", found=f"{version} at {path}")


def _spark_python() -> Finding:
    """Find out whether the Python that Spark will start has this package."""
    setting = " ".join(f"{name}={shlex.quote(value)}" for name, value in worker_python().items())
    advice = f"Spark's workers would not find spark_queue. For spark-submit, set {setting}"
    named = os.environ.get("PYSPARK_PYTHON", "python3")
    python = shutil.which(named)
    if python is None:
        return Finding(result="warning", found="none", advice=advice)
    code = "import spark_queue.client.outcomes, pyarrow; print('ready')"
    ready = shlex.quote(named) == named and "ready" in _run([python, "-c", code])
    return Finding(result="ok" if ready else "warning", found=python, advice="" if ready else advice)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return f"{done.stdout}{done.stderr}".strip()


def _token(journal: Journal) -> Finding:
    journal.endpoint.token()
    if journal.token_file is None and os.environ.get(user_files.TOKEN_VARIABLE):
        return Finding(result="ok", found=f"the environment variable {user_files.TOKEN_VARIABLE}")
    return Finding(result="ok", found=f"{journal.token_file or user_files.token_path()}, readable by you alone")


def _store(journal: Journal) -> Finding:
    journal_id = journal.journal_id()
    journal.store.check_put_if_absent()
    return Finding(result="ok", found=f"{journal.path}: put-if-absent holds, journal {journal_id}")


def _clock(journal: Journal) -> Finding:
    """Compare this host's clock with the store's, and with the newest record."""
    newest_ms = snapshot.load(journal.store, list_blocks(journal.store)).last_at_ms
    now_ms, written_ms = SystemClock().wall_ms(), journal.store.time_ms()
    ahead_ms = newest_ms - now_ms
    advice = "Set this host's clock: leases and expirations depend on it."
    if ahead_ms > _DAY_MS:
        return Finding(result="failed", found=f"the log is {ahead_ms / 1_000:,.0f} s ahead", advice=advice)
    if ahead_ms > CLOCK_SLACK_MS or abs(written_ms - now_ms) > CLOCK_SLACK_MS:
        found = f"{(written_ms - now_ms) / 1_000:+,.0f} s against the store, {-ahead_ms / 1_000:+,.0f} s against the log"
        return Finding(result="warning", found=found, advice=advice)
    return Finding(result="ok", found="agrees with the store and the log")


def _control_log(journal: Journal) -> Finding:
    """Return the finding about the part of the control log that the next start reads."""
    blocks, snapshots = list_blocks(journal.store), snapshot.stored(journal.store)
    tail, files = snapshot.load(journal.store, blocks), sum(block.is_file for block in blocks)
    found = f"{tail.next_record:,} records in {files:,} files; a start reads {len(tail.records):,} of them"
    if snapshots and tail.state is None:
        found += f", since none of {len(snapshots)} snapshots can be used"
        advice = "Nothing is lost: a start takes longer until a coordinator has written the next one. `sparkq verify` tells why."
        return Finding(result="warning", found=found, advice=advice)
    return Finding(result="ok", found=found)


def _files(journal: Journal) -> Finding:
    """Count message files, and those that nothing names: a coordinator deletes them a day later."""
    reader, (_, definitions) = open_with_definitions(journal.store)
    standing = waiting = 0
    for name in definitions.published_types:
        paths = open_messages(journal.store, reader.journal_id, name).get_add_actions().column("path").to_pylist()
        standing += len(paths)
        waiting += len(unnamed_files(journal.store, name, frozenset(map(str, paths))))
    return Finding(result="ok", found=f"{standing:,} in tables, {waiting:,} replaced or left over")


def _queues(journal: Journal) -> Finding:
    """Name the queues that are set aside, and the message types of which nothing enters any more."""
    seen = state_at(open_journal(journal.store))
    state, set_aside, stopped = seen.state, seen.state.set_aside_queues(), seen.troubles
    if set_aside or stopped:
        advice = " ".join(map(str, [*set_aside.values(), *stopped.values()]))
        told = {"set aside": set_aside, "stopped message types": stopped}
        found = "; ".join(f"{what}: {', '.join(names)}" for what, names in told.items() if names)
        return Finding(result="failed", found=found, advice=advice)
    repeated = repeated_entries(seen)
    if repeated:
        found = "entries of message logs that add files twice: " + ", ".join(
            f"version {each.facts['version']} of '{each.facts['message_type']}'" for each in repeated
        )
        return Finding(result="warning", found=found, advice=" ".join(map(str, repeated)))
    return Finding(result="ok", found=f"{len(state.queues):,}, and none is set aside")


def _peers(journal: Journal) -> Finding:
    """Find out whether a coordinator pulls from the journal's peers: no caller may come that would start one."""
    peers = journal.definitions().peers
    if not peers:
        return Finding(result="ok", found="none")
    try:
        _ping(journal, start=False)
    except CoordinatorError as refusal:
        advice = f"Nothing is pulled, and peers that ask get no answer. Keep `sparkq serve {journal.path}` running, as a service."
        return Finding(result="warning", found=refusal.code, advice=advice)
    troubles = state_at(open_journal(journal.store)).state.peer_troubles
    if troubles:
        return Finding(result="failed", found=", ".join(troubles), advice=" ".join(each.error for each in troubles.values()))
    return Finding(result="ok", found=f"{len(peers):,}, and a coordinator runs; `sparkq peers status` tells more")


def _coordinator(journal: Journal) -> Finding:
    reply = _ping(journal)
    for _ in range(RECOVERY_S):
        if not reply.recovering:
            log = f"in the background it logs to {_log(journal, reply.journal)}"
            known = read_advertisement(journal.store, reply.journal)
            where = "" if known is None else f" at {known.address}"
            found = f"epoch {reply.epoch} answers from process {reply.pid}{where}; {log}"
            return Finding(result="ok", found=found)
        time.sleep(1.0)
        reply = _ping(journal)
    advice = "It is reading its log; check again later with `sparkq status`."
    return Finding(result="warning", found=f"process {reply.pid} is still recovering", advice=advice)


def _checkpoint(location: str) -> Finding:
    """Judge the place of a query's checkpoint by its name: a journal does not know where its consumers have theirs."""
    if checkpoint_place.is_far(location):
        return Finding(result="warning", found=f"{location}: an object store", advice=checkpoint_place.FAR % location)
    return Finding(result="ok", found=location)


def _log(journal: Journal, journal_id: str) -> Path:
    return user_files.log_path(journal_id, location_of(journal.store))


def _ping(journal: Journal, *, start: bool = True) -> wire.Pong:
    reply = call_once(journal.store, journal.journal_id(), wire.Ping(), endpoint=journal.endpoint, start=start)
    return cast(wire.Pong, reply)
