"""Every benchmark by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks import (
    core,
    core_selection,
    curves,
    dashboard,
    deliveries,
    entering,
    explain,
    failing,
    growth,
    latency,
    looking,
    many_queues,
    memory,
    micro_batch,
    ordered,
    recovery,
    replication,
    replication_curves,
    replication_delay,
    replication_step,
    selected,
    throughput,
)
from tests.benchmarks.figure import Measure

BENCHMARKS: Mapping[str, Measure] = {
    "core": core.measure,
    "core-selection": core_selection.measure,
    "deliveries": deliveries.measure,
    "many-queues": many_queues.measure,
    "curves": curves.measure,
    "entering": entering.measure,
    "entering-expressions": entering.measure_expressions,
    "recovery": recovery.measure,
    "explain": explain.measure,
    "dashboard": dashboard.measure,
    "looking": looking.measure,
    "recovery-snapshot": recovery.from_snapshot,
    "commit-growth": growth.measure,
    "recovery-expressions": recovery.with_expressions,
    "memory": memory.measure,
    "micro-batch": micro_batch.measure,
    "micro-batch-profile": micro_batch.profile,
    "throughput": throughput.measure,
    "selected": selected.measure,
    "failing": failing.measure,
    "ordered": ordered.measure,
    "latency": latency.measure,
    "replication-pull": replication.pulling,
    "replication-backlog": replication.backlog,
    "replication-curves": replication_curves.measure,
    "replication-step": replication_step.measure,
    "replication-delay": replication_delay.measure,
    "replication-core": replication.core,
    "replication-memory": replication.memory,
    "replication-recovery": replication.recovery,
}
