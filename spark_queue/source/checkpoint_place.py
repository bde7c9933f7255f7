"""The place of a query's checkpoint: on an object store it costs each batch more than its table does (DESIGN 19)."""

from __future__ import annotations

#: Schemes of Hadoop's that lead to an object store, where a file is written aside and renamed by some twenty requests.
_OBJECT_STORES = frozenset({"s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs"})

FAR = (
    "The checkpoint of this query is on an object store (%s). For each batch Spark waits there for about 48 requests, which take "
    "longer than the batch itself. Unless the query keeps state, put its checkpoint on the driver's own disk: it may be lost at "
    "any moment, and each row is in the table once all the same."
)


def is_far(location: str) -> bool:
    """Return whether a checkpoint is on an object store, by the place that Spark was told."""
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.lower() in _OBJECT_STORES
