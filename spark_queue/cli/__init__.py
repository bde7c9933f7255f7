"""``sparkq``: looking after journals from a terminal. Nothing here needs Spark or Java."""

from __future__ import annotations


def main() -> None:
    """Run the command line, and end the process without waiting for threads of others in it.

    A refusal may leave a thread of Arrow in the middle of a read, which calls Python again when it returns: an interpreter that is
    being taken down by then aborts. Nothing here needs that work; every file is closed by the code that opened it.
    """
    import os
    import sys

    from spark_queue import allocator
    from spark_queue.cli.app import run

    allocator.leave_pandas_out()
    try:
        run()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            # The disk is full, or the reader of a pipe has closed it: the output is not complete.
            code = code or 1
        os._exit(code)
