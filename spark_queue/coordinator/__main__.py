"""`python -m spark_queue.coordinator`: the process that the launcher starts. People use `sparkq serve`."""

from __future__ import annotations

import logging
import os
import sys

import msgspec

from spark_queue import allocator
from spark_queue.coordinator import logs
from spark_queue.coordinator.process import Environment, serve, start_metrics
from spark_queue.errors import SparkQueueError
from spark_queue.protocol.host import Report, StartOptions


def main() -> int:
    """Read options from stdin, report one line on stdout, and serve."""
    allocator.leave_pandas_out()
    options = msgspec.json.decode(sys.stdin.buffer.read(), type=StartOptions)
    logs.configure(options.log_format)
    # The starter's directory may be unmounted while this process lives on.
    os.chdir("/")
    try:
        told, scraped_at = start_metrics(options)
        if scraped_at is not None:
            logging.getLogger(__name__).info("Metrics are at %s.", scraped_at)
        serve(options, lambda address: _report(Report(address=address)), Environment(metrics=told))
    except SparkQueueError as refusal:
        if options.ends_idle and refusal.code == "COORDINATOR_SERVES":
            # A caller that wants one on demand is served by any.
            _report(Report(address=str(refusal.facts["address"])))
            return 0
        logging.getLogger(__name__).error("%s", refusal)  # noqa: TRY400  # A refusal has no use for a traceback.
        _report(Report(code=refusal.code, facts=dict(refusal.facts)))
        return 1


def _report(report: Report) -> None:
    try:
        os.write(sys.stdout.fileno(), msgspec.json.encode(report, enc_hook=str) + b"\n")
    except BrokenPipeError:
        # The starter is gone; others will call.
        logging.getLogger(__name__).info("No process waits for the report.")
    # The pipe ends here, and all that libraries print from now on belongs into the log.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
