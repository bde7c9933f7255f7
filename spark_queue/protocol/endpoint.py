"""Where a journal's coordinator is asked, and with whose token."""

from __future__ import annotations

from dataclasses import dataclass

from spark_queue.protocol import user_files


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How a caller reaches the coordinator of its journal. A value: it reads nothing until asked."""

    #: Addresses of coordinators that `sparkq serve` runs, with commas between them; None where one is found or started here.
    addresses: str | None = None
    #: The file of the caller's token; None where the environment or the user's own file has it.
    token_file: str | None = None

    def token(self) -> str:
        """Read the token, anew each time: its file may hold another one by now.

        Raises
        ------
        ConfigError
            BAD_VALUE when its file is not there.
        CoordinatorError
            TOKEN_FILE_UNSAFE when others could read or replace it, or when it is empty.
        """
        return user_files.token(self.token_file)


#: A coordinator that is found or started here, with the token of the environment or of this user.
LOCAL = Endpoint()
