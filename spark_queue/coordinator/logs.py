"""The coordinator's own log: lines for people, or JSON for programs, with request, queue and subscription where they apply."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable

from spark_queue.protocol import wire
from spark_queue.settings.timestamps import to_text

#: How a log may be written.
FORMATS = ("text", "json")

#: Facts of a line that a program finds under names of their own.
FACTS = ("code", "request", "queue", "subscription")

#: How long a refusal of the same queue, subscription and code is not logged again, in seconds: a caller may ask every second.
QUIET_S = 60.0

#: Most characters that are logged of a name that a caller chose.
_NAME_CHARACTERS = 256

#: Most refusals that are remembered for it.
_REMEMBERED = 1_000

_LOG = logging.getLogger(__name__)


class JsonLines(logging.Formatter):
    """Writes each line of the log as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": to_text(int(record.created * 1_000), "milliseconds"), "level": record.levelname, "logger": record.name,
            "pid": record.process, "message": record.getMessage(),
        }  # fmt: skip
        line |= {name: str(getattr(record, name)) for name in FACTS if getattr(record, name, None) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(log_format: str) -> None:
    """Let this process write its log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s {os.getpid()} %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class RefusalLog:
    """Logs refused calls, each kind once a minute."""

    def __init__(self, count: Callable[[str], None] | None = None, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._monotonic_s = monotonic_s
        #: The time of the last line about each kind, the newest at the end.
        self._told_at_s: dict[tuple[str, ...], float] = {}

    def refused(self, request: wire.AnyRequest | None, code: str) -> None:
        """Note a refused call; None for one that could not be understood."""
        if self._count is not None:
            self._count(code)
        queue, subscription, request_id = (_named(request, name) for name in ("queue", "subscription", "request"))
        kind = "a call" if request is None else type(request).__name__
        key, now_s = (code, kind, str(queue), str(subscription)), self._monotonic_s()
        if now_s - self._told_at_s.get(key, -QUIET_S) < QUIET_S:
            return
        # Calls are refused by many threads; the worst that a race does is a line too many.
        self._told_at_s.pop(key, None)
        self._told_at_s[key] = now_s
        while len(self._told_at_s) > _REMEMBERED:
            self._told_at_s.pop(next(iter(self._told_at_s), key), None)
        # As Python writes it: a name with line breaks would make lines of its own.
        of = "".join(f", {name} {value!r}" for name, value in (("queue", queue), ("subscription", subscription)) if value)
        facts = {"code": code, "request": request_id, "queue": queue, "subscription": subscription}
        _LOG.info("Refused %s%s: %s.", kind, of, code, extra=facts)


def _named(request: wire.AnyRequest | None, name: str) -> str | None:
    """Return a name that a caller gave, as much of it as a log should hold."""
    given = getattr(request, name, None)
    return None if given is None else str(given)[:_NAME_CHARACTERS]
