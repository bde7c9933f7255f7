"""What a user may set, in one registry: Spark options here, the keys of definition files in `core.definitions.keys`.

Validation, did-you-mean errors, ``sparkq options`` and the reference's tables all come from it.
"""

from __future__ import annotations

from spark_queue.settings.read import load_definitions, read_options, read_purpose
from spark_queue.settings.tables import RegistryRow, key_rows, option_rows
from spark_queue.settings.timestamps import ambiguous, parse_timestamp, to_ms
from spark_queue.settings.types import (
    AUTO,
    EXPLICIT,
    VIEWS,
    Options,
    Position,
    Purpose,
    QueueStreamOptions,
    TopicBatchOptions,
    TopicStreamOptions,
    ViewOptions,
    WriteOptions,
)

__all__ = [
    "AUTO",
    "EXPLICIT",
    "VIEWS",
    "Options",
    "Position",
    "Purpose",
    "QueueStreamOptions",
    "RegistryRow",
    "TopicBatchOptions",
    "TopicStreamOptions",
    "ViewOptions",
    "WriteOptions",
    "ambiguous",
    "key_rows",
    "load_definitions",
    "option_rows",
    "parse_timestamp",
    "read_options",
    "read_purpose",
    "to_ms",
]
