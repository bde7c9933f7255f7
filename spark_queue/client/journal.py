"""`Journal`: the users' handle of a journal. It is a value that opens nothing until asked (DESIGN 9).

Methods import the modules that they need themselves: a publisher loads neither the core's decisions nor the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_queue.client.arguments import CATCH_UP_WITHIN, REPLICATED_WITHIN, checked
from spark_queue.client.handle import Handle
from spark_queue.journal.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_queue.client.catching_up import TablesRead
    from spark_queue.client.changes import Change
    from spark_queue.client.peer import Peer
    from spark_queue.client.peer_checks import PeerCheck
    from spark_queue.client.peers import PeerStatus
    from spark_queue.client.proving import ProvenLease
    from spark_queue.client.publisher import Publisher
    from spark_queue.client.queue import Queue
    from spark_queue.core.commands import TableCommand
    from spark_queue.journal.commit import Published

#: Definitions as users give them: a TOML file, or its tables as a dict.
DefinitionSource = str | Path | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Journal(Handle):
    """A journal by its path. Frozen, picklable and lazy: it opens nothing until a method needs it.

    Parameters
    ----------
    path : str
        A directory, or an object-store prefix such as ``s3://bucket/orders``.
    storage_options : Mapping[str, str], optional
        Options of the object store, as deltalake takes them.
    coordinator : str, optional
        ``host:port`` of a coordinator that `sparkq serve` runs on another host; of several, with commas between them, the one that
        serves is followed.
    token_file : str, optional
        File with the token of the caller, of mode 0600; default: what `SPARKQ_TOKEN` or `SPARKQ_TOKEN_FILE` say, or the user's own.
        It is read again when the coordinator refuses the token.
    """

    @classmethod
    @checked
    def create(
        cls, path: str, definitions: DefinitionSource | None = None, *, storage_options: Mapping[str, str] | None = None
    ) -> Journal:
        """Create a journal, and apply definitions when given.

        Parameters
        ----------
        path, storage_options
            As for `Journal`.
        definitions
            A TOML file, or its tables as a dict; without them the journal is empty until `apply`.

        Raises
        ------
        JournalError
            JOURNAL_EXISTS, STORE_UNSAFE or STORE_FAILED.
        ConfigError
            What is wrong with the definitions, such as TABLE_NAME_UNKNOWN for a table that no active Spark session knows by its
            name; nothing was created.
        """
        from spark_queue.journal.creation import create_journal
        from spark_queue.settings.read import load_definitions

        wanted = None if definitions is None else load_definitions(definitions)
        journal = cls(path, storage_options=storage_options)
        create_journal(journal.store, wanted)
        return journal

    @checked
    def apply(
        self, definitions: DefinitionSource, *, dry_run: bool = False, reset: Iterable[str] = (), remove: Iterable[str] = (),
        leave: Iterable[str] = (),
    ) -> list[Change]:  # fmt: skip
        """Make `definitions` the whole set of definitions of the journal.

        Parameters
        ----------
        definitions
            A TOML file, or its tables as a dict.
        dry_run
            Only tell what would change, or refuse what could not be applied; new and changed expressions are tried out on the
            newest messages.
        reset
            Queues whose recovery point is taken again.
        remove
            Queues that `definitions` leave out and that may go, with what was remembered of their messages.
        leave
            The same, of those that this instance shares with others: what it owns there nobody delivers until it joins again.

        Returns
        -------
        list of Change
            What changes; empty when nothing does, and then nothing is recorded.

        Raises
        ------
        ConfigError
            What is wrong with them, such as TABLE_NAME_UNKNOWN, or MESSAGE_TYPE_CHANGED; DEFINITION_IN_USE also where they leave
            out a queue that neither `remove` nor `leave` names; DEFINITIONS_CHANGED where others were applied at the same time.
        AccessError
            ACCESS_DENIED or TOKEN_EXPIRED, also for a dry run.
        """
        from spark_queue.client.changes import plan
        from spark_queue.client.coordinator_client import call_once
        from spark_queue.core import commands
        from spark_queue.journal.open import open_journal
        from spark_queue.journal.table_look import completed
        from spark_queue.settings.read import load_definitions

        resets, opened = tuple(reset), open_journal(self.store)
        wanted = completed(self.store, load_definitions(definitions), opened.definitions())
        named = {"remove": set(remove), "leave": set(leave)}
        found = plan(opened, wanted, reset=resets, endpoint=self.endpoint, dry_run=dry_run, **named)
        if found.changes and not dry_run:
            command = commands.Apply(definitions=dict(wanted.stored), reset=resets, planned_on=found.planned_on)
            call_once(self.store, opened.journal_id, command, endpoint=self.endpoint)
        return found.changes

    @checked
    def follow(self, message_type: str, *, version: int | None = None) -> None:
        """Let a message type that was set aside go on elsewhere in the log of the table that it follows (R148).

        Parameters
        ----------
        message_type
            Its name.
        version
            The first version of the table whose rows enter; default: what is committed next. The log records what is skipped.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE: it is not set aside.
        ConfigError
            UNKNOWN_MESSAGE_TYPE; BAD_VALUE for a version that has entered, or that is not there; TABLE_COLUMNS_DIFFER.
        JournalError
            TABLE_UNSUPPORTED.
        """
        from spark_queue.core import commands

        self._decide(commands.Follow(message_type=message_type, first=version))

    @checked
    def catch_up(self, *, timeout: str = CATCH_UP_WITHIN) -> TablesRead:
        """Read the logs of all tables that are followed on, and copy messages whose files VACUUM may take soon (R152, R157).

        A coordinator does the same by itself while it runs, which it need not where nobody consumes. Starts one if none runs.

        Parameters
        ----------
        timeout
            How long to wait for the copies, as a duration.

        Returns
        -------
        TablesRead
            The number of files of which messages are still to be copied or let go, and the troubles that keep a message type from
            being read further, by its name.

        Raises
        ------
        ConfigError
            BAD_VALUE.
        CoordinatorError
            COORDINATOR_UNAVAILABLE.
        """
        from spark_queue.client.catching_up import catch_up

        return catch_up(self.store, self.journal_id(), self.endpoint, timeout=timeout)

    @checked
    def give_up_files(self, message_type: str) -> None:
        """Let messages of a followed table be lost whose files its store does not have any more, by your word (R155).

        A queue that was set aside for one of them is back after that, without them.

        Parameters
        ----------
        message_type
            Its name.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE: it follows no table, or none of its files is missing.
        ConfigError
            UNKNOWN_MESSAGE_TYPE.
        JournalError
            STORE_FAILED: the table's store does not say whether it has a file.
        """
        from spark_queue.core import commands

        self._decide(commands.GiveUpFiles(message_type=message_type))

    @checked
    def forget_lost(self, message_type: str) -> None:
        """Remove the dead letters of lost messages of a followed table, which ends their alarm (R155).

        Parameters
        ----------
        message_type
            Its name.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE: it follows no table.
        ConfigError
            UNKNOWN_MESSAGE_TYPE.
        """
        from spark_queue.core import commands

        self._decide(commands.ForgetLost(message_type=message_type))

    def _decide(self, command: TableCommand) -> None:
        """Have the coordinator decide what a person wants of a followed table."""
        from spark_queue.client.coordinator_client import call_once

        call_once(self.store, self.journal_id(), command, endpoint=self.endpoint)

    @checked
    def publish(
        self,
        data: Any,
        *,
        topic: str | None = None,
        publisher: str | None = None,
        first_sequence: int | None = None,
        expires_after: str | None = None,
        deliver_after: str | None = None,
        replicated_to: int = 0,
        timeout: str = REPLICATED_WITHIN,
    ) -> Published:
        """Publish rows in one commit; they are visible, all of them, when this returns.

        What other threads of this process publish to the same message type meanwhile goes together into the next commit.

        Parameters
        ----------
        data
            An Arrow table or record batch, a pandas DataFrame, or dicts.
        topic
            The topic, or a queue's name; default: the rows' own column ``topic``.
        publisher
            Name under which the rows are numbered and a repeat is dropped (R95); without it nothing is (R99).
        first_sequence
            Number of the first row, with a publisher; the others follow. `publisher()` counts by itself.
        expires_after
            Such as ``"1h"`` (R60); default: the rows' own column ``expires_at``, or never.
        deliver_after
            Such as ``"10m"``: no queue delivers these messages earlier, counted from this commit (R128).
        replicated_to, timeout
            Return only when so many peers of this instance have pulled it, and wait so long for them.

        Raises
        ------
        CallerError
            What is wrong with the rows; nothing was published.
        ConfigError
            BAD_VALUE: there are not so many peers; nothing was published.
        CoordinatorError
            REPLICATION_PENDING: it is published, and so many peers do not have it in time.
        """
        from spark_queue.client.publisher import publish

        return publish(
            self.store,
            self.endpoint,
            data,
            topic=topic,
            expires_after=expires_after,
            deliver_after=deliver_after,
            publisher=publisher,
            first_sequence=first_sequence,
            replicated_to=replicated_to,
            timeout=timeout,
        )

    @checked
    async def publish_async(
        self,
        data: Any,
        *,
        topic: str | None = None,
        publisher: str | None = None,
        first_sequence: int | None = None,
        expires_after: str | None = None,
        deliver_after: str | None = None,
        replicated_to: int = 0,
        timeout: str = REPLICATED_WITHIN,
    ) -> Published:
        """Publish rows as `publish` does, without blocking the event loop; those that are awaited at once share commits.

        If the task that waits is cancelled, the rows may be published all the same.

        Parameters
        ----------
        data, topic, publisher, first_sequence, expires_after, deliver_after, replicated_to, timeout
            As for `publish`.

        Raises
        ------
        CallerError
            As for `publish`.
        ConfigError
            As for `publish`.
        CoordinatorError
            As for `publish`.
        """
        from spark_queue.client.publisher import publish_async

        return await publish_async(
            self.store,
            self.endpoint,
            data,
            topic=topic,
            expires_after=expires_after,
            deliver_after=deliver_after,
            publisher=publisher,
            first_sequence=first_sequence,
            replicated_to=replicated_to,
            timeout=timeout,
        )

    def publisher(self, name: str) -> Publisher:
        """Open a named publisher for several batches; an older process of that name is refused from now on (R98).

        Use it in a ``with`` statement.
        """
        from spark_queue.client.publisher import Publisher

        return Publisher(self.store, self.endpoint, name)

    @checked
    def queue(self, name: str) -> Queue:
        """Return a queue by name; whether it exists is checked when it is used."""
        from spark_queue.client.queue import Queue

        return Queue(self, name)

    @checked
    def peer(self, name: str) -> Peer:
        """Return a peer by the name of its instance; whether it is one is checked when it is used."""
        from spark_queue.client.peer import Peer

        return Peer(self.store, self.endpoint, name)

    @checked
    def mark_restored(self, *, after: int | None = None) -> None:
        """Say that the journal was put back from a backup: what enters is new, and what was lost comes back from its peers.

        Parameters
        ----------
        after
            Where nothing tells that it was restored: the record that PEER_RESTORED names.

        Raises
        ------
        CallerError
            UNSUPPORTED_WRITE where nothing tells so, and no record is given.
        """
        import uuid

        from spark_queue.client.coordinator_client import CoordinatorClient, call_once
        from spark_queue.core import commands

        journal_id, command = self.journal_id(), commands.Restored(origin=str(uuid.uuid4()), after=after)
        # Where the coordinator was when the backup was made says nothing of now, and would be waited for.
        CoordinatorClient(self.store, journal_id, endpoint=self.endpoint).forget_past()
        call_once(self.store, journal_id, command, endpoint=self.endpoint)

    @checked
    def prove(self, checkpoint: str, *, storage_options: Mapping[str, str] | None = None) -> list[ProvenLease]:
        """Acknowledge the last batch that a query has committed to its checkpoint, where the query could not say so itself.

        Parameters
        ----------
        checkpoint
            The ``checkpointLocation`` of the query, as a path or a URL.
        storage_options
            How its store is reached; default: as the journal's.

        Raises
        ------
        LeaseError
            NOTHING_TO_PROVE where it has no committed batch, or does not exist; CHECKPOINT_FOREIGN where its last one is none of a
            queue of this journal; STALE_RUN where a newer reader took the subscription over meanwhile.
        """
        from spark_queue.client.proving import prove

        options = self.store.storage_options if storage_options is None else storage_options
        return prove(self.store, self.endpoint, Store(checkpoint, options))

    def check_peers(self) -> PeerCheck:
        """Check whether the definitions of all instances that share queues with this one fit each other; starts nothing.

        Raises
        ------
        ConfigError
            NO_PEERS.
        """
        from spark_queue.client.peer_checks import check_peers

        return check_peers(self.store)

    def peer_status(self) -> list[PeerStatus]:
        """Tell how pulling from each peer goes; starts nothing.

        Raises
        ------
        ConfigError
            NO_PEERS.
        """
        from spark_queue.client.peers import peer_status

        return peer_status(self.store, self.endpoint)

    @checked
    def view(
        self,
        name: str,
        *,
        queue: str | None = None,
        as_of: datetime | int | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        next_first: bool = False,
    ) -> pa.Table:
        """Read a view, or part of it, without Spark and without a coordinator.

        In pandas, whole numbers of which some are missing have pandas' type for that, such as Int64.

        Parameters
        ----------
        name
            messages, leases, dead_letters, history, sink_commits, table_changes, subscriptions or status.
        queue
            The queue; may be absent for history, sink_commits, table_changes and status.
        as_of
            An aware time or a record number; default: now, with what was published but has not entered yet.
        columns, limit
            Only these columns, in this order, and at most so many rows; bodies of messages are read only for what is shown.
        next_first
            Of view messages: only those that may be granted now, in the order in which they are: by priority, the oldest first.

        Raises
        ------
        ConfigError
            BAD_VALUE, UNKNOWN_QUEUE or MISSING_OPTION.
        CallerError
            RECORD_UNKNOWN, TIMESTAMP_AMBIGUOUS, UNKNOWN_COLUMN or COLUMN_TWICE.
        """
        from spark_queue.journal.open import open_journal
        from spark_queue.views import read_view, state_at
        from spark_queue.views.tables import with_pandas_types

        view = read_view(
            state_at(open_journal(self.store), as_of), name, queue, columns=columns, limit=limit, next_first=next_first
        )
        return with_pandas_types(view)

    @checked
    def view_schema(self, name: str, *, queue: str | None = None) -> pa.Schema:
        """Return the columns of a view."""
        from spark_queue.views import view_schema

        return view_schema(name, self.definitions(), queue)
