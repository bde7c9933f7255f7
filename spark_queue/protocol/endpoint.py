"""Where a coordinator is asked, and with whose token, as a value: who holds one has not loaded Flight yet."""

from __future__ import annotations

from dataclasses import dataclass

from spark_queue.errors import ConfigError, CoordinatorError, check_text
from spark_queue.journal.store import Store
from spark_queue.protocol import user_files
from spark_queue.protocol.discovery import is_own_word
from spark_queue.protocol.host import normalise_address


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a caller reaches the coordinator of its journal. A value: it reads nothing until asked."""

    #: Addresses of coordinators that `sparkq serve` runs, with commas between them; None where one is found or started here.
    addresses: str | None = None
    #: The file of the caller's token; None where the environment or the user's own file has it.
    token_file: str | None = None

    def __post_init__(self) -> None:
        if self.addresses is not None:
            check_text(self.addresses, key="coordinator", where="the caller")
        if self.token_file is not None:
            check_text(str(self.token_file), key="token_file", where="the caller")

    def uris(self) -> tuple[str, ...]:
        """Return the Flight URIs of `addresses`, ``host:port,host:port``, in order: a coordinator, and its stand-ins."""
        text = self.addresses or ""
        addresses = [address.strip() for address in text.split(",")]
        if not all(addresses):
            expected = "HOST:PORT or HOST:PORT,HOST:PORT"
            raise ConfigError("BAD_VALUE", key="coordinator", where="the caller", value=text, expected=expected)
        return tuple(map(normalise_address, addresses))

    def token(self, store: Store | None = None) -> str:
        """Read the token for a journal, anew each time: its file may hold another one by now."""
        return user_files.token(self.token_file, store=store)

    def check_sends(self, store: Store, address: str) -> None:
        """Refuse to send a token to where a journal says that its coordinator is, unless the token is for this journal."""
        is_for_journal = user_files.find_token(self.token_file, store=store).is_for_journal
        if not is_for_journal and not is_own_word(store, address):
            raise CoordinatorError("TOKEN_NAMES_NO_JOURNAL", address=address, path=store.path)

    def check(self) -> None:
        """Refuse addresses and a file that no call could use, before anybody calls; connects to nobody."""
        if self.token_file is not None:
            self.token()
        if self.addresses is None:
            return
        from spark_queue.protocol.flight_client import open_client  # noqa: PLC0415 - most endpoints call nobody, and load no Flight.

        for address in self.uris():
            open_client(address).close()


#: A coordinator that is found or started here, with the token of the environment or of this user.
LOCAL = Endpoint()
