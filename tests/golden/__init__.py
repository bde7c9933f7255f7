"""The stored formats and the wire as version 1 has them, kept in git: what a later version must read, and must still write.

`1/journal` is a journal as it lies on a disk, with each kind of record once at least; `told.json` is what it says; `seen.json` the
form of its files, and `forms.json` that of all that classes declare of what is stored and sent; `frames.json` each message on the
wire as bytes. `python -m tests.golden` made them. It adds what is new, such as a kind of record, and changes nothing that stands: a
form of version 1 is frozen. What has to differ gets a new number, and a folder of its own beside this one, while readers go on
reading this one.
"""

from __future__ import annotations

from pathlib import Path

#: Version 1.
FOLDER = Path(__file__).parent / "1"

#: What a test says where something is not as it was.
FROZEN = (
    "The form of {what} is frozen: journals and callers that exist have it. Undo the change. If it must differ, give it a new "
    "number (FORMAT, BODY_VERSION, MARK_VERSION, OFFSET_VERSION or COMMAND_VERSION), let readers take the old one as well, "
    "describe both in PROTOCOL.md, and make golden files of the new one beside those of the old. A form that is new, such as a "
    "kind of record, is added by `python -m tests.golden`."
)
