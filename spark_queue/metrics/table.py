"""The table of metrics: the figures of journals under their names (DESIGN 18).

It is the one place that names a metric. The exposition, OTLP, the reference, and the tests of alert rules and of the Grafana board
are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """The kind of a metric: its values stand for themselves, only rise, or are counted by size."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


class Scope(StrEnum):
    """The subject of each series of a metric."""

    JOURNAL = "journal"
    QUEUE = "queue"
    SUBSCRIPTION = "subscription"
    PEER = "peer"
    #: The process that coordinates a journal, or stands by.
    PROCESS = "process"


#: The labels that a metric has by its scope.
LABELS: dict[Scope, tuple[str, ...]] = {
    Scope.JOURNAL: ("journal",),
    Scope.QUEUE: ("journal", "queue"),
    Scope.SUBSCRIPTION: ("journal", "queue", "subscription"),
    Scope.PEER: ("journal", "peer"),
    Scope.PROCESS: ("journal",),
}

#: Upper bounds of the buckets of commits, in seconds.
COMMIT_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the table."""

    name: str
    kind: MetricKind
    scope: Scope
    #: The name of its value among the figures of its scope.
    figure: str
    help: str
    unit: str = ""
    #: The label of the parts of its value, beside those of its scope.
    by: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of each of its series."""
        return (*LABELS[self.scope], *((self.by,) if self.by else ()))


#: Name, type, unit, figure, help and, where its value has parts, their label.
_Cells = tuple[str, MetricKind, str, str, str] | tuple[str, MetricKind, str, str, str, str]


def _metrics(scope: Scope, *rows: _Cells) -> tuple[Metric, ...]:
    """Make the rows of a scope."""
    return tuple(
        Metric(name=f"sparkqueue_{name}", kind=kind, scope=scope, unit=unit, figure=figure, help=about, by=by[0] if by else "")
        for name, kind, unit, figure, about, *by in rows
    )


_G, _C, _H = MetricKind.GAUGE, MetricKind.COUNTER, MetricKind.HISTOGRAM

METRICS: tuple[Metric, ...] = (
    *_metrics(
        Scope.JOURNAL,
        ("journal_up", _G, "", "up", "Whether the journal can be read: 1, or 0 and it has no other figures."),
        ("observed_timestamp_seconds", _G, "seconds", "observed_at_s", "When these figures were true, in seconds since 1970 UTC."),
        ("records_total", _C, "records", "records", "Records of the control log."),
        ("coordinator_epoch", _G, "", "epoch", "The number of the newest reign of a coordinator."),
        ("coordinator_last_seen_timestamp_seconds", _G, "seconds", "coordinator_seen_at_s",
         "When a coordinator last reported that it serves, in seconds since 1970 UTC; 0 when none does. It reports every 5 s."),
    ),
    *_metrics(
        Scope.QUEUE,
        ("queue_up", _G, "", "up", "Whether the queue's figures can be computed: 1, or 0 and it has no others."),
        ("queue_paused", _G, "", "paused", "Whether nothing is granted: 1 when the queue is paused, or an alarm stops all of it."),
        ("queue_alarm", _G, "", "alarm", "Whether the queue has an alarm: 1, and `sparkq status` says why."),
        ("dead_letter_queue", _G, "", "collects_letters", "Whether dead letters of another queue go there: 1, or 0."),
        ("queue_depth", _G, "messages", "queue_depth", "Messages in the queue."),
        ("available_messages", _G, "messages", "available", "Messages that can be granted."),
        ("backlog_messages", _G, "messages", "backlog", "Messages given to subscriptions and not yet settled or proven."),
        ("delayed_messages", _G, "messages", "delayed", "Messages that are not due yet."),
        ("held_barriers", _G, "messages", "held", "Barriers that wait."),
        ("released_barriers_total", _C, "messages", "barriers_released", "Barriers that were released."),
        ("inactive_messages", _G, "messages", "inactive_message_count", "Messages beyond the target depth."),
        ("deferred_acknowledgements", _G, "messages", "deferred_ack_count", "Messages beyond it that are acknowledged already."),
        ("dead_letters", _G, "messages", "dead_letters", "Dead letters that are not settled."),
        ("failed_expressions_total", _C, "messages", "failed_expressions", (
            "Messages on which an expression failed as they entered."
        )),
        ("entered_messages_total", _C, "messages", "entered", "Messages that ever entered."),
        ("acknowledged_messages_total", _C, "messages", "acknowledged", "Messages acknowledged, or delivered at most once."),
        ("expired_messages", _G, "messages", "expired",
         "Messages that left by age, by a limit, by `expire` or by a purge, and were not redriven."),
        ("expired_lease_messages_total", _C, "messages", "expired_leases", "Messages whose lease ran out."),
        ("max_backlog_messages", _G, "messages", "max_backlog", "Most messages leased at once; 0 for no limit."),
        ("target_depth_messages", _G, "messages", "target_queue_depth", "Most active messages; 0 for no limit."),
        ("subscriptions", _G, "subscriptions", "subscriptions", "Subscriptions of the queue."),
        ("receivers", _G, "subscriptions", "receivers", "Subscriptions of receivers, which consume without Spark."),
        ("late_outcomes_total", _C, "messages", "outcomes_too_late", "Outcomes of receivers that came too late to be recorded."),
        ("oldest_message_age_seconds", _G, "seconds", "seconds_behind", "Age of the oldest message in the queue; 0 without one."),
        ("oldest_lease_age_seconds", _G, "seconds", "age_of_oldest_lease", "Age of the oldest lease; 0 without one."),
        ("longest_batch_seconds", _G, "seconds", "longest_batch_seconds",
         "How long the batch that runs for the longest has been running; 0 without one."),
        ("sink_attempts_in_doubt", _G, "attempts", "attempts_in_doubt",
         "Attempts to append to a sink that are in doubt."),
        ("oldest_sink_attempt_age_seconds", _G, "seconds", "age_of_oldest_attempt",
         "How long ago the oldest of them was prepared; 0 without one."),
        ("foreign_files", _G, "files", "foreign_files", "Files that other software appended to the message table."),
        ("table_version", _G, "", "table_version",
         "The last version that was read of the table which the queue follows; 0 without one."),
        ("table_versions_behind", _G, "versions", "table_versions_behind",
         "Versions that this table has and that were not read yet; 0 without one."),
        ("table_changes_total", _C, "commits", "table_changes", "Commits of that table that changed rows and were passed over."),
        ("table_passed_rows_total", _C, "rows", "table_rows_passed", "Rows at most that these brought and that did not enter."),
        ("table_set_aside", _G, "", "table_set_aside",
         "Whether the message type is set aside, so that nothing more of that table enters."),
        ("owned_messages", _G, "messages", "owned", "Messages in the queue that this instance owns."),
        ("remote_messages", _G, "messages", "remote", "Messages in the queue that another instance owns."),
        ("oldest_remote_message_age_seconds", _G, "seconds", "age_of_oldest_remote", "Age of the oldest of them; 0 without one."),
        ("oldest_request_age_seconds", _G, "seconds", "age_of_oldest_request",
         "How long an owner has been asked for some of them in vain; 0 where none is."),
        ("transferred_in_messages_total", _C, "messages", "transferred_in", "Messages that other instances gave to this one."),
        ("transferred_out_messages_total", _C, "messages", "transferred_out", "Messages that this instance gave to others."),
        ("proxied_transfer_messages_total", _C, "messages", "proxied_transfer",
         "Messages that this instance claimed, since their owner could not be reached."),
        ("proxied_transfer_allowed", _G, "", "proxied_transfer_allowed", "Whether it may claim such messages."),
        ("removed_messages_total", _C, "messages", "removed", "Messages that left the queue, by reason.", "reason"),
        ("returned_messages_total", _C, "messages", "returned", "Messages that came back from a lease, by reason.", "reason"),
        ("lease_duration_seconds", _H, "seconds", "lease_duration",
         "How long leases lasted, from the grant until the batch was proven, or nothing of it was left."),
        ("delivery_delay_seconds", _H, "seconds", "delivery_delay",
         "How long messages waited, from when they entered until they were leased for the first time."),
    ),
    *_metrics(
        Scope.SUBSCRIPTION,
        ("subscription_backlog_messages", _G, "messages", "backlog", "Messages given to the subscription and not yet settled."),
        ("subscription_alarm", _G, "", "alarm", "Whether the subscription has an alarm."),
        ("subscription_last_seen_timestamp_seconds", _G, "seconds", "last_seen_at_s",
         "When the subscription last did something that the log records, in seconds since 1970 UTC."),
        ("subscription_lease_duration_seconds", _H, "seconds", "lease_duration",
         "How long leases of the subscription lasted; see sparkqueue_lease_duration_seconds."),
    ),
    *_metrics(
        Scope.PEER,
        ("peer_readable", _G, "", "readable", "Whether the peer's log can be read from here."),
        ("peer_behind_records", _G, "records", "records_behind", "Records of the peer that are to be taken over."),
        ("peer_behind_seconds", _G, "seconds", "seconds_behind", "Age of the oldest of them; 0 when all is taken over."),
        ("peer_remote_messages", _G, "messages", "remote", "Messages of queues here that the peer owns."),
        ("peer_requested_messages", _G, "messages", "requested", "Messages that the peer is being asked for."),
        ("peer_transferred_in_messages_total", _C, "messages", "transferred_in", "Messages that came from the peer."),
        ("peer_transferred_out_messages_total", _C, "messages", "transferred_out", "Messages that the peer was given."),
        ("peer_disagreements", _G, "rules", "disagreements", "Rules that its definitions and those of this journal break."),
        ("peer_reachable", _G, "", "reachable", "Whether the peer counts as reachable. Known to a serving coordinator alone."),
        ("peer_silent_seconds", _G, "seconds", "silent_s",
         "How long the peer has been silent. Known to a serving coordinator alone."),
        ("peer_trouble", _G, "", "trouble",
         "Whether something keeps the peer from being pulled, such as a refusal. Known to a serving coordinator alone."),
        ("peer_copied_messages_total", _C, "messages", "rows_copied",
         "Messages copied from the peer since the coordinator began. Known to a serving coordinator alone."),
        ("peer_copied_bytes_total", _C, "bytes", "bytes_copied",
         "Bytes copied from the peer since the coordinator began. Known to a serving coordinator alone."),
    ),
    *_metrics(
        Scope.PROCESS,
        ("coordinator_serving", _G, "", "serving", "Whether this process coordinates the journal: 1, or 0 while it stands by."),
        ("commit_duration_seconds", _H, "seconds", "commit_duration", "How long commits to the control log took."),
        ("refusals_total", _C, "calls", "refusals", "Calls that were refused, by the code of the error.", "code"),
        ("store_requests_total", _C, "requests", "store_requests",
         "Requests that this process made to object stores, by kind (GET, PUT, LIST, DELETE or HEAD); a POST of an upload in parts "
         "counts as a PUT. Those that delta-rs makes for itself are not known; they come with upkeep and at the start.", "kind"),
    ),
)  # fmt: skip
