"""A coordinator's proof of itself, and its user's keys."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

import msgspec

from spark_queue.coordinator.logins import CallerTokens, token_of
from spark_queue.protocol import wire
from spark_queue.protocol.proof import Introduction, Meeting


class Proofs:
    """Recognises callers that know a key of this coordinator, by a proof for its journal, its place and this process alone.

    The location is asked anew each time: a copy may have taken the original's place.
    """

    def __init__(self, journal_id: str, logins: CallerTokens, location: Callable[[], str]) -> None:
        #: Random, so that a proof for one process opens no other.
        self._name = secrets.token_hex(16)
        #: The header that stands for the own token at one location, and that location: to make it costs a tenth of a call.
        self._bearer = ("", b"")
        self._journal_id = journal_id
        self._logins = logins
        self.location = location

    def meeting(self, introduction: Introduction) -> Meeting | None:
        """Return the secret that is shared with a caller that introduces itself; None where it has no key of this coordinator."""
        keys = (self._logins.own_key, *self._logins.keys_of_principals())
        return next((each for each in map(self._meeting, keys) if each.knows(introduction)), None)

    def prove(self, meeting: Meeting, introduction: Introduction, pong: wire.Pong, address: str) -> wire.Pong:
        """Return an answer with its proof."""
        wants_token = meeting.key != self._logins.own_key
        said = msgspec.structs.replace(pong, address=address, session=self._name, wants_token=wants_token)
        return msgspec.structs.replace(said, proof=meeting.prove(introduction, said))

    def stands_for_token(self, header: bytes) -> bool:
        """Return whether a call's header stands for the token of the user who runs the coordinator."""
        meeting, (location, bearer) = self._meeting(self._logins.own_key), self._bearer
        if meeting.location != location or not bearer:
            bearer = meeting.bearer(self._logins.own, self._name).encode()
            self._bearer = (meeting.location, bearer)
        return hmac.compare_digest(bearer, token_of(header))

    def _meeting(self, key: bytes) -> Meeting:
        return Meeting(key=key, journal_id=self._journal_id, location=self.location())
