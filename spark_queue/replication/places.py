"""Whether a peer's store has a file where one should be, before anything waits for it or opens it (DESIGN 17.3).

A pipe would be waited for without end, and a link could lead to a file of somebody else. What opens a Delta log takes into memory
what its folder has, and counts from each version to the next.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from spark_queue.errors import JournalError
from spark_queue.journal.layout import CONTROL, CONTROL_LOG, Store
from spark_queue.journal.message_file import is_in_place
from spark_queue.replication.bounded_files import BoundedFile, UnboundedFileError

#: Most bytes of an entry of the log; ours name a few files.
ENTRY_BYTES = 16 * 1024 * 1024

#: Most bytes of a checkpoint; ours name what left within an hour, some hundred bytes for each commit, and are compressed.
CHECKPOINT_BYTES = 64 * 1024 * 1024

#: Most bytes of what a checkpoint has in memory, where texts that repeat stand each time.
_CHECKPOINT_DECODED_BYTES = 256 * 1024 * 1024

#: How many of its rows are looked at together.
_CHECKPOINT_ROWS = 64

#: What a checkpoint is made of.
_ACTIONS = ("add", "remove", "txn", "metaData", "protocol", "domainMetadata", "checkpointMetadata", "sidecar")

#: Most bytes of what tells where the last checkpoint is.
_HINT_BYTES = 100_000

#: No listing of a log that is written meanwhile lacks as many versions one after the other.
_JUMP_MOST = 10_000

_NUMBERED = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
#: Files that stand for several others, or name further ones; our software writes none.
_COMPOUND = re.compile(r"[0-9]{20}\.(checkpoint\..+\.(parquet|json)|.*compacted\.json)")


def refused(peer: str, what: str, reason: object) -> JournalError:
    """Make PEER_REFUSED for a part of a peer's journal."""
    text = str(reason).rstrip(".")
    return JournalError("PEER_REFUSED", peer=peer, what=what, reason=f"{text[:500]}.")


def check_place(store: Store, peer: str, key: str) -> None:
    """Refuse what is no file, or a link that leads out of its folder; where there is nothing, whoever reads it tells.

    Raises
    ------
    JournalError
        PEER_REFUSED.
    """
    if not is_in_place(store, key):
        raise refused(peer, key, "it is no file, or a link to one that is elsewhere")


def check_log(store: Store, peer: str) -> None:
    """Refuse a folder of a control log with what no software of ours leaves there, and that would keep whoever opens it.

    Raises
    ------
    JournalError
        PEER_REFUSED, LOG_GAP, STORE_FAILED.
    """
    if store.is_local:
        folder = Path(store.uri(CONTROL_LOG))
        if not folder.is_dir():
            # Whoever opens it tells that no journal is there.
            return
        with store.failures(f"listing {CONTROL_LOG}"), os.scandir(folder) as standing:
            # A listing of the store leaves out what is no file. A log has thousands of plain ones, which need no further look.
            odd = [each.name for each in standing if not each.is_file(follow_symlinks=False) and not (folder / each.name).is_dir()]
        for name in odd:
            check_place(store, peer, f"{CONTROL_LOG}/{name}")
    versions = list[int]()
    for entry in store.list(CONTROL_LOG):
        name = entry.key.rsplit("/", 1)[1]
        numbered = _NUMBERED.fullmatch(name)
        most = _HINT_BYTES if numbered is None else ENTRY_BYTES if numbered[2] == "json" else CHECKPOINT_BYTES
        if (numbered is not None or name == "_last_checkpoint") and entry.size_bytes > most:
            raise refused(peer, entry.key, f"it has {entry.size_bytes} bytes, and {most} are the most")
        if numbered is None and _COMPOUND.fullmatch(name) is not None:
            raise refused(peer, entry.key, "it is no file of a control log")
        if numbered is not None and numbered[2] != "json":
            _check_checkpoint(store, peer, entry.key)
        versions += [] if numbered is None else [int(numbered[1])]
    for before, version in pairwise(sorted(versions)):
        if version - before > _JUMP_MOST:
            raise JournalError("LOG_GAP", path=store.uri(CONTROL), version=version - 1)


def _check_checkpoint(store: Store, peer: str, key: str) -> None:
    """Refuse a checkpoint that would fill the memory of whoever opens it; of a damaged one, and one that is gone, he tells."""
    decoded_bytes = 0
    with suppress(pa.ArrowException, OSError):
        try:
            file = BoundedFile(store.open(key), _ACTIONS)
            for part in file.parts(0, file.row_count, most_rows=_CHECKPOINT_ROWS):
                decoded_bytes += part.nbytes
                if decoded_bytes > _CHECKPOINT_DECODED_BYTES:
                    raise UnboundedFileError(f"it has more than {_CHECKPOINT_DECODED_BYTES} bytes in memory")
        except UnboundedFileError as reason:
            raise refused(peer, key, reason) from None
