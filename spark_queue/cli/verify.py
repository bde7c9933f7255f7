"""``sparkq verify``: the invariants of `verification`, run on a journal on disk, and all message files read.

``sparkq verify`` of an instance: its state against the logs of its peers, as far as they can be read (DESIGN 17.4).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec
from rich.progress import Progress

from spark_queue.cli.output import progress, show_findings
from spark_queue.core.definitions.definition import WITHHOLDING
from spark_queue.core.message_files.message_type import MessageTypeState
from spark_queue.core.message_files.segment import Segment, stretches
from spark_queue.core.records import Entered, Followed, JournalCreated, MergedFile, Passed, Record, Stopped
from spark_queue.core.state.findings import table_alarms
from spark_queue.core.state.journal_state import JournalState
from spark_queue.core.state.needed import due_files
from spark_queue.errors import JournalError, SparkQueueError
from spark_queue.journal import snapshot
from spark_queue.journal.damage import damaged_files
from spark_queue.journal.folder import of_segment, of_table
from spark_queue.journal.log_listing import first_unbroken, versions_after
from spark_queue.journal.message_compaction import METADATA_KEY
from spark_queue.journal.message_table import lacks, open_messages
from spark_queue.journal.open import DeltaJournal, open_journal
from spark_queue.journal.opening import opened
from spark_queue.journal.store import CONTROL, MESSAGES, Store, messages_key
from spark_queue.journal.table_features import unnamed_features
from spark_queue.journal.traits import FileTraits
from spark_queue.replication.peer_files import DAMAGE, PeerMessages, refused
from spark_queue.replication.peer_process import ask
from spark_queue.replication.peer_stores import peer_store
from spark_queue.replication.restored import has_record, read_records
from spark_queue.verification.instances import of_origins, of_what_was_pulled
from spark_queue.verification.of_log import of_message_log, of_records
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from spark_queue.views import JournalView, state_at
from spark_queue.views.journal_view import repeated_entries, state_of


def of_peers(journal: DeltaJournal, folded: JournalState) -> tuple[list[str], list[str]]:
    """Return problems, of pulled news that is not known here or at a peer, and warnings, of peers that cannot be read."""
    problems, warnings = list(of_origins(folded)), list[str]()
    for trouble in folded.peer_troubles.values():
        # That this journal was put back is a fault of its own.
        (problems if trouble.error.startswith("[JOURNAL_RESTORED]") else warnings).append(trouble.error)
    for name, definition in folded.definitions.peers.items():
        watermark = folded.pulled.get(name)
        if watermark is None or watermark.record < 0:
            warnings.append(f"Peer '{name}' is not compared: nothing of it is pulled yet, or it is read anew.")
            continue
        try:
            # Its options are those of the own journal, as when it is pulled.
            there = peer_store(journal.store, definition)
            found = ask(name, tuple[list[str], list[str]], compare, there, journal.store, name, share=_SHARE)
        except SparkQueueError as trouble:
            # A peer that cannot be read is no fault of this journal, and still worth a warning.
            warnings.append(f"Peer '{name}' is not compared: {trouble}")
            continue
        problems += found[0]
        warnings += found[1]
    return problems, warnings


#: The resources of a comparison, as a multiple of pulling's: it has two whole logs in memory.
_SHARE = 8


def compare(store: Store, own: Store, name: str) -> tuple[list[str], list[str]]:
    """Return the news that one of two journals has pulled of the other and does not know, and those that were not compared.

    To be asked of a process (`sandbox`).
    """
    journal = open_journal(own)
    records = journal.records()
    here = state_of(records, journal.traits)
    definition, watermark, instance = here.definitions.peers[name], here.pulled[name], str(here.definitions.journal.instance)
    of_peer = read_records(store, name)
    created = of_peer[0].body
    found = created.journal if isinstance(created, JournalCreated) else ""
    if found != watermark.journal:
        raise JournalError("PEER_REPLACED", peer=name, expected=watermark.journal, found=found, journal=own.path)
    peer_traits = FileTraits(store, PeerMessages(store, name))

    def peer_state(until: int | None) -> JournalState:
        try:
            state = state_of(of_peer, peer_traits, until=until)
        except DAMAGE as reason:
            raise refused(name, "its log", f"its records make no journal ({reason!r})") from None
        for trouble in state.set_aside_queues().values():
            raise refused(name, "its log", str(trouble))
        return state

    problems, warnings = list[str](), list[str]()
    if has_record(of_peer, watermark):
        problems += of_what_was_pulled(
            here, peer_state(watermark.record + 1), _compared(here, name, definition.queues),
            passes=definition.passes, who="this instance", whom=f"'{name}'",
        )  # fmt: skip
    else:
        warnings.append(
            f"Peer '{name}' is not compared: its log no longer has record {watermark.record} as it was pulled, as after a restore "
            "from a backup. Its log is pulled anew."
        )
    there = peer_state(None)
    back, of_this = there.definitions.peers.get(instance), there.pulled.get(instance)
    if back is not None and of_this is not None and of_this.journal == here.journal_id and has_record(records, of_this):
        problems += of_what_was_pulled(
            there, state_of(records, journal.traits, until=of_this.record + 1),
            _compared(there, instance, back.queues), passes=back.passes, who=f"'{name}'", whom="this instance",
        )  # fmt: skip
    return problems, warnings


def _compared(hearer: JournalState, speaker: str, queues: Sequence[str]) -> tuple[str, ...]:
    """Return those of some queues of which an instance takes news over: by its records the others are not the same."""
    withheld = {each.queue for each in hearer.disagreements.get(speaker, ()) if each.rule in WITHHOLDING}
    return tuple(queue for queue in queues if queue not in withheld)


def verify(store: Store, *, as_json: bool) -> None:
    """Check a journal; exits with 1 when a promise is broken."""
    try:
        journal = open_journal(store)
    except JournalError as damage:
        _show_closed(damage, _of_log_files(store), as_json=as_json)
        sys.exit(1)
    with progress() as bar:
        records, folded, problems = _fold(journal, bar)
        seen, warnings = None, list[str]()
        if folded is not None:
            of_snapshots, warnings = _of_snapshots(journal, folded, records)
            problems += of_snapshots
            problems += _of_logs(journal, folded, records)
            of_others, of_unread = of_peers(journal, folded)
            problems, warnings = problems + of_others, warnings + of_unread
            # Messages that have not entered yet must be whole, too.
            seen = state_at(journal)
            problems += _of_strangers(seen)
            warnings += map(str, repeated_entries(seen))
            warnings += _of_removed_files(seen)
            problems += _of_files(journal.store, seen, bar)
            # A file that keeps messages out of their queues is in no list of files yet.
            problems += [trouble for trouble in seen.troubles.values() if trouble not in problems]
            problems += [str(each) for each in folded.set_aside_queues().values() if each.code == "QUEUE_SET_ASIDE"]
        # Where one file of a log is named, there may be others.
        problems += [each for each in _of_log_files(store) if each not in problems]
    found = f"{len(problems)} problem(s)." if problems or seen is None else _whole(records, seen)
    value, text = {"journal": journal.journal_id, "records": len(records)}, f"Journal {journal.journal_id}: {found}"
    show_findings(value, text, problems=problems, warnings=warnings, as_json=as_json)
    if problems:
        sys.exit(1)


def _whole(records: Sequence[Record], seen: JournalView) -> str:
    # Counted as status counts them: also what no coordinator has seen yet.
    messages = sum(message_type.entered_until for message_type in seen.state.message_types.values())
    return f"{len(records):,} records, {messages:,} messages, {len(seen.state.queues)} queue(s). Every promise holds."


def _of_log_files(store: Store) -> list[str]:
    """Return the damage of each file of a log, of any table, that is needed to open it."""
    logs = {each.key.partition("/_delta_log/")[0] for each in store.list(MESSAGES) if "/_delta_log/" in each.key}
    return [str(damage) for key in (CONTROL, *sorted(logs)) for damage in damaged_files(store, key)]


def _show_closed(damage: JournalError, others: list[str], *, as_json: bool) -> None:
    """Show the damage of a journal that cannot be opened, and each damaged file; any other error is raised again."""
    if damage.code not in ("JOURNAL_DAMAGED", "LOG_GAP"):
        raise damage
    problems = list(dict.fromkeys([str(damage), *others]))
    text = f"The journal cannot be opened: {len(problems)} problem(s)."
    show_findings({"journal": None, "records": 0}, text, problems=problems, warnings=[], as_json=as_json)


def _fold(journal: DeltaJournal, bar: Progress) -> tuple[Sequence[Record], JournalState | None, list[str]]:
    task = bar.add_task("control log", total=1)
    try:
        records = journal.records()
    except SparkQueueError as damage:
        return (), None, [str(damage)]
    problems = of_records(records)
    try:
        folded = state_of(records, journal.traits)
    except SparkQueueError as damage:
        return records, None, [*problems, str(damage)]
    bar.update(task, completed=1)
    return records, folded, problems + of_state(folded)


def _of_snapshots(journal: DeltaJournal, folded: JournalState, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Return problems and warnings: a usable snapshot must have the state of the log; one that is not usable costs time only."""
    problems, warnings = [], []
    for index, (_, key) in enumerate(snapshot.stored(journal.store)):
        try:
            tail = snapshot.resume(journal.store, key, records)
        except ValueError as reason:
            warnings.append(f"{key} is not used: {reason}. Nothing is lost; the next start may take longer.")
            continue
        if folded.troubles or index >= snapshot.KEPT:
            # The log cannot be folded as far as the snapshot, while a file is missing; and from each older one would take too long.
            continue
        found, expected = digest(tail.fold(journal.traits)), digest(folded)
        wrong = [name for name in expected if found[name] != expected[name]]
        if wrong:
            problems.append(f"{key} has other {' and '.join(wrong)} than the log. Delete it; the next start then reads the log.")
    return problems, warnings


def _of_logs(journal: DeltaJournal, folded: JournalState, records: Sequence[Record]) -> Iterator[str]:
    for name, known in folded.message_types.items():
        if known.followed is not None:
            yield from _of_table(journal, name, known, records)
            continue
        # Entries cleaned away after they had entered are no gap; nor is a publisher's commit at a version that had gone before it.
        first = first_unbroken(journal.store, messages_key(name), known.version)
        try:
            # Publishers need other entries than those left to enter.
            declared = folded.definitions.message_types.get(name)
            lacking = [] if declared is None else lacks(journal.store, journal.journal_id, name, declared.columns)
            unnamed = unnamed_features(open_messages(journal.store, journal.journal_id, name))
            entries = list(journal.messages(name).tail(max(first, 0) - 1))
        except SparkQueueError as damage:
            yield str(damage)
        else:
            if lacking:
                found = f"its table has no column {', '.join(lacking)}, which the definitions declare"
                yield f"message type '{name}': {found}. Its files keep their values of it, and stay unmerged"
            if unnamed:
                found = f"its table uses {', '.join(unnamed)}, which its Delta protocol does not list"
                what_to_do = "Nothing is lost, but Spark's Delta cannot open it. Add them with add_feature of deltalake's alter"
                yield f"message type '{name}': {found}. {what_to_do}"
            yield from of_message_log(records, name, entries)


def _of_table(journal: DeltaJournal, name: str, known: MessageTypeState, records: Sequence[Record]) -> Iterator[str]:
    """Yield what is wrong with the log of a followed table: each entry that still stands must be the one that was read."""
    assert known.followed is not None, "it follows a table"
    if known.followed.trouble is not None:
        yield str(known.followed.trouble)
        return
    folder, log = of_table(journal.store, known.followed.columns.table), journal.messages(name, known.followed)
    read = _tokens(records, name)
    try:
        standing = read.keys() & set(versions_after(folder.store, folder.key, -1))
        for version in sorted(standing):
            log.recover(version=version, token=read[version])
        log.recover(version=known.version, token=known.token)
    except SparkQueueError as damage:
        yield str(damage)


def _of_strangers(seen: JournalView) -> list[str]:
    foreign = {name: known.foreign_files for name, known in seen.state.message_types.items()}
    return [str(JournalError("JOURNAL_FOREIGN_APPEND", message_type=name, files=files)) for name, files in foreign.items() if files]


def _of_removed_files(seen: JournalView) -> list[str]:
    """Return the alarms about messages of followed tables whose file is gone, or may be soon."""
    found = (each for ledger in seen.state.queues.values() for each in table_alarms(seen.state, ledger).values())
    return [f"{each.text}." for each in found if each.since_ms <= seen.now_ms]


def _of_files(store: Store, seen: JournalView, bar: Progress) -> Iterator[str]:
    """Read every column of every message file: a footer says nothing of the pages behind it."""
    files = list[Segment]()
    for name, known in seen.state.message_types.items():
        # One that a followed table has removed may go once no queue needs it.
        may_go = {due.segment.first for due in due_files(seen.state, name) if not due.needed}
        files += [file for file in stretches(known.segments) if not file.retired and file.first not in may_go]
    task = bar.add_task("message files", total=len(files))
    for file in files:
        try:
            _read(store, file)
        except JournalError as damage:
            yield str(damage)
        bar.advance(task)


def _tokens(records: Sequence[Record], name: str) -> dict[int, str]:
    """Return the tokens of the commits of a followed table that were read, by version, of the log that stands there now."""
    found, table_id, is_other = dict[int, str](), "", False
    for record in records:
        if record.message_type != name:
            continue
        match record.body:
            case Followed(id=of_table_now, version=version, token=token):
                if is_other or of_table_now != table_id:
                    found.clear()
                table_id, is_other = of_table_now, False
                if token:
                    found[version] = token
            case Passed(version=version, token=token, id=of_table_now):
                found[version], table_id = token, of_table_now
            case Entered(version=version, token=token):
                found[version] = token
            case Stopped(error=code):
                is_other = code == "TABLE_REPLACED"
    return found


def _read(store: Store, file: Segment) -> None:
    folder = of_segment(store, file)
    with opened(folder, file.path) as parquet:
        rows = sum(batch.num_rows for batch in parquet.iter_batches())
        mapping = (parquet.metadata.metadata or {}).get(METADATA_KEY.encode())
    merged = None if mapping is None else msgspec.json.decode(mapping, type=MergedFile)
    if rows != file.row_count:
        raise folder.corrupt(file.path, f"it has {rows} rows instead of {file.row_count}.")
    is_made = file.merged or file.kept is not None
    if is_made != (merged is not None) or (merged is not None and _shape(merged) != (file.path, file.first, rows)):
        raise folder.corrupt(file.path, "its record of the files that it was merged from does not match it.")


def _shape(merged: MergedFile) -> tuple[str, int, int]:
    return merged.path, merged.parts[0].bookmark, merged.row_count
