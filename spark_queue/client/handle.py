"""`Handle`: a journal by its path, and the way to reach it, of every object of users' (DESIGN 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from spark_queue.journal.store import Store
from spark_queue.protocol.endpoint import Endpoint

if TYPE_CHECKING:
    from spark_queue.core.definitions.definition import Definitions


@dataclass(frozen=True, slots=True)
class Handle:
    """The place of a journal, and how its coordinator is asked; see `Journal`."""

    path: str
    _: KW_ONLY
    storage_options: Mapping[str, str] | None = field(default=None, repr=False, hash=False)
    coordinator: str | None = None
    token_file: str | None = None

    @property
    def store(self) -> Store:
        """The journal's place."""
        store = Store(self.path, self.storage_options or {})
        if store.is_local:
            # Of an object store its first call refuses them.
            store.check_options()
        return store

    @property
    def endpoint(self) -> Endpoint:
        """Where its coordinator is asked, and with whose token."""
        return Endpoint(self.coordinator, self.token_file)

    def journal_id(self) -> str:
        """Read the journal's id.

        Raises
        ------
        JournalError
            NOT_A_JOURNAL.
        """
        from spark_queue.journal.reader import open_reader  # noqa: PLC0415 - who only holds a handle loads no pyarrow.

        return open_reader(self.store).journal_id

    def definitions(self) -> Definitions:
        """Read the definitions that hold; starts nothing."""
        from spark_queue.journal.reader import open_with_definitions  # noqa: PLC0415 - as above.

        return open_with_definitions(self.store)[1][1]
