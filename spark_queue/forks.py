"""Which process uses a journal: delta-rs, obstore and Flight keep threads and connections, of which a forked child has a dead copy.

Their own ways to say so are a panic, which is no `Exception`, and to wait for ever.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

from spark_queue.errors import CallerError


class _Use:
    #: The process that used a journal first, here or where this one was forked from; None before.
    process: int | None = None


def check_process() -> None:
    """Refuse to go on in a child of a process that had used a journal before it forked; otherwise this one uses it from now on."""
    here = os.getpid()
    if _Use.process is None:
        _Use.process = here
    elif _Use.process != here:
        raise CallerError("JOURNAL_FORKED", pid=here, parent=_Use.process)


#: Objects that must not end in a child: Flight's clients join threads that are not there, which aborts it, or hangs (tried).
_parents: weakref.WeakSet[Any] = weakref.WeakSet()


def keep_in_children(resource: Any) -> None:
    """Let a forked child never free something of its parent, not even where its interpreter ends."""
    _parents.add(resource)


def _keep_all() -> None:
    for resource in _parents:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


os.register_at_fork(after_in_child=_keep_all)


def check_panic(failure: BaseException) -> None:
    """Refuse as `check_process` a library's panic: it was used before the fork by others than this package."""
    if type(failure).__name__ == "PanicException" and "fork" in str(failure).lower():
        raise CallerError("JOURNAL_FORKED", pid=os.getpid(), parent=os.getppid()) from None
