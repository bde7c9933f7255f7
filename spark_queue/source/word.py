"""A report to the coordinator that nobody waits for, and that has to arrive all the same."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable

from spark_queue.errors import CoordinatorError, SparkQueueError

_log = logging.getLogger(__name__)

#: Pause before a report is made again that did not arrive, in seconds; its call has searched for a coordinator for a while.
PAUSE_S = 1.0

#: How long the end of the process waits for one, in seconds: what did not arrive is in doubt, and the next start finds out.
_EXIT_S = 5.0


class Word:
    """A report that a thread of its own makes again and again until it arrives or is refused; `about` names it in the log.

    While it has not arrived its messages are in doubt, and the stream gets no others. So it is never given up.
    """

    def __init__(self, say: Callable[[], None], about: str) -> None:
        self._say, self._about = say, about
        # A daemon's thread, since a coordinator that stays away must not keep a process from its end.
        self._thread = threading.Thread(target=self._until_heard, name="sparkqueue-word", daemon=True)
        atexit.register(self._thread.join, _EXIT_S)
        self._thread.start()

    def _until_heard(self) -> None:
        try:
            while not self._is_heard():
                time.sleep(PAUSE_S)
        except SparkQueueError as refusal:
            _log.warning("the coordinator refuses the word of a %s: %s", self._about, refusal)
        finally:
            atexit.unregister(self._thread.join)

    def _is_heard(self) -> bool:
        try:
            self._say()
        except CoordinatorError as reason:
            _log.warning("the coordinator does not know yet of a %s: %s", self._about, reason)
            return False
        return True

    def wait(self) -> None:
        """Wait until it has arrived, or was refused."""
        self._thread.join()
