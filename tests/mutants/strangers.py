"""Bugs in what somebody without a token, or with one that counts no more, can take, learn or do."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STRANGERS = ("tests/unit/coordinator/test_strangers.py",)
_RIGHTS = ("tests/unit/cli/test_rights.py",)

STRANGERS = (
    Mutant(
        "strangers take all connections that there are",
        '        "grpc.max_allowed_incoming_connections": connections_max,\n', "",
        _STRANGERS,
    ),
    Mutant(
        "connections take all descriptors",
        "min(CONNECTIONS_MAX, soft - min(DESCRIPTORS_KEPT, soft // 2))", "min(CONNECTIONS_MAX, soft)", _STRANGERS,
    ),
    Mutant(
        "who says nothing keeps the connection",
        '        "grpc.max_connection_idle_ms": IDLE_MS,\n', "",
        _STRANGERS,
    ),
    Mutant(
        "a message is read before the token",
        "        reply = self._answer_unknown(messages, context) if may_be_known_later else None\n",
        '        reply = self._answer_unknown(messages, context) if next(messages, b"") and may_be_known_later else None\n',
        _STRANGERS,
    ),
    Mutant(
        "what is packed is inflated",
        '"grpc.compression_enabled_algorithms_bitset": 1,', '"grpc.compression_enabled_algorithms_bitset": 7,',
        _STRANGERS,
    ),
    Mutant(
        "who has a token may send as slowly as it likes",
        "                    context.cancel()\n", "                    pass\n", _STRANGERS,
    ),
    Mutant("a crowd may be as slow as one", "READ_S if len(waits) <= CROWD else CROWDED_READ_S", "READ_S", _STRANGERS),
    Mutant(
        "one that sends everybody away is gone",
        "return Presence.SILENT if _is_heard(address, timeout_s) else Presence.GONE", "return Presence.GONE", _STRANGERS,
    ),
    Mutant(
        "one that does not answer on this host is succeeded though it renews",
        "    if same_host and presence is Presence.GONE:\n", "    if same_host:\n", ("tests/unit/coordinator/test_election.py",),
    ),
    Mutant(
        "what nobody may ask is read first",
        "elif (early := self._refuse_ahead(who, wire.decode_envelope(frame))) is None:", "elif (early := None) is None:",
        ("tests/unit/coordinator/test_translating_ahead.py",),
    ),
    Mutant(
        "a call is what it says first",
        "return _decode(_request_decoders[kind], frame)", "return _decode(msgspec.msgpack.Decoder(AnyRequest), frame)",
        ("tests/unit/coordinator/test_translating_ahead.py",),
    ),
    Mutant(
        "a firewall that refuses ends a reign",
        "return _is_taken(at)", "return False", ("tests/unit/coordinator/test_server.py",),
    ),
    Mutant(
        "polls may hold every thread",
        " and place >= too_many and not", " and not",
        ("tests/unit/coordinator/test_loop_polls.py",),
    ),
    Mutant(
        "who may be known later hears of process and reign",
        "epoch=0, pid=0, recovering=True", "epoch=self._epoch, pid=os.getpid(), recovering=True", _STRANGERS,
    ),
    Mutant(
        "guesses that come at once are all looked at",
        "if until_ms - now_ms > (FREE_GUESSES - 1) * GUESS_MS:", "if until_ms < 0:", ("tests/unit/protocol/test_guesses.py",),
    ),
    Mutant(
        "half a request keeps a place on the page",
        "CONNECTIONS_MAX and not self._end_one():", "CONNECTIONS_MAX:", ("tests/unit/dashboard/test_connections.py",),
    ),
    Mutant(
        "who is being answered makes room on the page",
        "        if is_answered:\n", "        if number < 0:\n", ("tests/unit/dashboard/test_connections.py",),
    ),
    Mutant(
        "who says nothing keeps scrapes out",
        " or (self._end_one() and self._free.acquire(timeout=_ROOM_S))", "", ("tests/unit/metrics/test_scraping.py",),
    ),
    Mutant(
        "jars are whatever a repository gives",
        '    _check(draft / "jars")\n', "",
        ("tests/unit/test_delta_jars.py",),
    ),
    Mutant(
        "who was looked up before principals were known is taken for the host",
        " or (who is not None and who.is_early)", "", ("tests/unit/coordinator/test_server_principals.py",),
    ),
    Mutant(
        "a principal who asks for a proof while it recovers is a stranger",
        "may_be_known_later=is_early and is_principal)", "may_be_known_later=not self._logins.knows_principals and is_principal)",
        ("tests/unit/coordinator/test_server_principals.py",),
    ),
    Mutant("an expired token publishes", "        raise expiry\n", "        return known\n", _RIGHTS),
    Mutant("whoever reads the log tries definitions", "    if token is not None:\n", "    if token == 0:\n", _RIGHTS),
    Mutant(
        "a batch function that exits ends the thread that Spark waits for",
        "except BaseException as ended:", "except GeneratorExit as ended:", ("tests/unit/source/test_foreach_batch.py",),
    ),
    Mutant(
        "a login that is left in the middle fills the page's log",
        "        ClientDisconnect: site.left,\n", "", ("tests/unit/dashboard/test_guard.py",),
    ),
    Mutant(
        "a request of another principal is a repeat",
        "isinstance(command, commands.ChangeCommand) and command.request:", "False:", ("tests/unit/coordinator/test_hidden.py",),
    ),
    Mutant(
        "a path that delta-rs decodes is another directory",
        "if urllib.parse.unquote(found) != found or", "if", ("tests/unit/journal/test_open.py",),
    ),
    Mutant(
        "a coordinator of another version counts as gone, and is deposed",
        'if reply.code == "VERSIONS_DIFFER":', "if False:", ("tests/unit/coordinator/test_server.py",),
    ),
)  # fmt: skip
