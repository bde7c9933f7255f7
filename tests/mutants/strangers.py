"""Bugs in what somebody without a token, or with one that counts no more, can take, learn or do."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PORT = "spark_queue/coordinator/flight_port.py"
_SERVER = "spark_queue/coordinator/server.py"
_STRANGERS = ("tests/unit/coordinator/test_strangers.py",)
_RIGHTS = ("tests/unit/cli/test_rights.py",)

STRANGERS = (
    Mutant(
        "strangers take all connections that there are",
        _PORT, '        "grpc.max_allowed_incoming_connections": connections_max,\n', "",
        _STRANGERS,
    ),
    Mutant(
        "connections take all descriptors",
        _PORT, "min(CONNECTIONS_MAX, soft - min(DESCRIPTORS_KEPT, soft // 2))", "min(CONNECTIONS_MAX, soft)",
        _STRANGERS,
    ),
    Mutant(
        "who says nothing keeps the connection",
        _PORT, '        "grpc.max_connection_idle_ms": IDLE_MS,\n', "",
        _STRANGERS,
    ),
    Mutant(
        "a message is read before the token",
        _SERVER,
        "        reply = self._answer_unknown(messages, context) if may_be_known_later else None\n",
        '        reply = self._answer_unknown(messages, context) if next(messages, b"") and may_be_known_later else None\n',
        _STRANGERS,
    ),
    Mutant(
        "what is packed is inflated",
        _PORT, '"grpc.compression_enabled_algorithms_bitset": 1,', '"grpc.compression_enabled_algorithms_bitset": 7,',
        _STRANGERS,
    ),
    Mutant(
        "who may be known later may send as slowly as it likes",
        _SERVER, "        late.start()\n", "",
        _STRANGERS,
    ),
    Mutant(
        "who may be known later hears of process and reign",
        _SERVER, "epoch=0, pid=0, recovering=True", "epoch=self._epoch, pid=os.getpid(), recovering=True",
        _STRANGERS,
    ),
    Mutant(
        "guesses that come at once are all looked at",
        "spark_queue/protocol/guesses.py", "if until_ms - now_ms > (FREE_GUESSES - 1) * GUESS_MS:", "if until_ms < 0:",
        ("tests/unit/protocol/test_guesses.py",),
    ),
    Mutant(
        "half a request keeps a place on the page",
        "spark_queue/dashboard/connections.py", "CONNECTIONS_MAX and not self._end_one():", "CONNECTIONS_MAX:",
        ("tests/unit/dashboard/test_connections.py",),
    ),
    Mutant(
        "who is being answered makes room on the page",
        "spark_queue/dashboard/connections.py", "        if is_answered:\n", "        if number < 0:\n",
        ("tests/unit/dashboard/test_connections.py",),
    ),
    Mutant(
        "who says nothing keeps scrapes out",
        "spark_queue/metrics/scraping.py", " or (self._end_one() and self._free.acquire(timeout=_ROOM_S))", "",
        ("tests/unit/metrics/test_scraping.py",),
    ),
    Mutant(
        "jars are whatever a repository gives",
        "spark_queue/delta_jars.py", '    _check(draft / "jars")\n', "",
        ("tests/unit/test_delta_jars.py",),
    ),
    Mutant(
        "an expired token publishes",
        "spark_queue/client/writing_rights.py", "        raise expiry\n", "        return known\n",
        _RIGHTS,
    ),
    Mutant(
        "whoever reads the log tries definitions",
        "spark_queue/client/changes.py", "    if token is not None:\n", "    if token == 0:\n",
        _RIGHTS,
    ),
    Mutant(
        "a batch function that exits ends the thread that Spark waits for",
        "spark_queue/source/foreach_batch.py", "except BaseException as ended:", "except GeneratorExit as ended:",
        ("tests/unit/source/test_foreach_batch.py",),
    ),
)  # fmt: skip
