"""What the reference says of figures, views and columns, whose names and types come from the product."""

from __future__ import annotations

#: Each figure of a queue's status.
FIGURES = {
    "queue": "The queue's name.",
    "message_type": "Its message type.",
    "semantics": "at-least-once or at-most-once.",
    "paused": "Whether nothing is granted: somebody paused the queue, or an alarm stops every subscription.",
    "alarm": "What somebody should look at: a subscription whose sink is down, messages that fail alone again and again, messages "
    "that cannot enter, a message file that is gone or damaged. Where that file has to tell which messages the queue has, there "
    "are no other figures.",
    "queue_depth": "Messages in the queue: the sum of `available`, `backlog`, `delayed`, `held` and `inactive_message_count`. The "
    "`backlog` of an at-most-once queue does not count: it has left the queue.",
    "available": "Messages that can be granted.",
    "backlog": "Messages that were given to subscriptions and are not yet settled or proven.",
    "delayed": "Messages that are not due yet.",
    "held": "Barriers that wait.",
    "barriers_released": "Barriers that were released.",
    "inactive_message_count": "Messages beyond the target depth.",
    "deferred_ack_count": "How many of those beyond the target depth are acknowledged already.",
    "dead_letters": "Dead letters that are not settled. Those in a dead-letter queue count there, and at the queue that "
    "they came from.",
    "failed_expressions": "Messages on which an expression failed when they came.",
    "entered": "Messages that ever entered.",
    "acknowledged": "Messages acknowledged, or delivered at most once.",
    "expired": "Messages that left by age, by a limit, by `expire` or by a purge.",
    "expired_leases": "Messages whose lease ran out. Unless the queue is at-most-once, they came back. Kept across restarts.",
    "receivers": "Subscriptions of receivers, which consume in plain Python.",
    "outcomes_too_late": (
        "Outcomes of receivers that were refused, since their lease was over and somebody else had the message, or had settled it. "
        "Each such message was handled twice. Kept across restarts."
    ),
    "max_backlog": "Most messages leased at once; 0 for no limit.",
    "target_queue_depth": "Most active messages; 0 for no limit.",
    "subscriptions": "How many subscriptions there are.",
    "seconds_behind": "Age of the oldest message in the queue, in seconds: since it entered, was redriven, or came into this "
    "dead-letter queue.",
    "age_of_oldest_lease": "Age of the oldest lease, in seconds.",
    "foreign_files": "Files that other software appended to the message table.",
    "table": "The [table that its message type follows](../guide/follow.md); null for none.",
    "table_version": "The last version of that table that was read.",
    "table_versions_behind": "How many versions the table has beyond that; null where nobody looked.",
    "table_changes": "Commits of the table that changed rows and were passed over.",
    "table_rows_passed": "How many rows these brought at most that did not enter. [View `table_changes`](views.md#table_changes) "
    "has each commit.",
    "table_set_aside": "Whether the message type is set aside, so that nothing more of the table enters. `alarm` tells the way on.",
    "longest_batch_seconds": "How long the batch that has been running for the longest has been running, in seconds, since its "
    "rows were given out. A consumer that hangs renews its lease, so this shows it.",
    "longest_batch_subscription": "The subscription whose batch that is.",
    "attempts_in_doubt": "Batches of which nobody knows whether they stand in their sink; their messages wait until it is decided.",
    "age_of_oldest_attempt": "How long ago the oldest of them was prepared, in seconds.",
    "owned": "Messages in the queue that this instance owns.",
    "remote": "Messages in the queue that another instance owns. They count in no other figure but `entered`.",
    "age_of_oldest_remote": "Age of the oldest of them, in seconds.",
    "age_of_oldest_request": "For how long an owner has been asked in vain for some of them, in seconds.",
    "transferred_in": "Messages that other instances gave to this one.",
    "transferred_out": "Messages that this instance gave to others.",
    "proxied_transfer": "Messages that this instance claimed, since their owner could not be reached.",
    "proxied_transfer_allowed": "Whether it may claim such messages: `sparkq proxied-transfer`.",
}

#: What each view shows.
VIEW_MEANINGS = {
    "messages": "The messages in a queue, oldest first, without those beyond its target depth. First come the columns of the "
    "message type ([`message_NAME`](columns.md#names-that-are-reserved) where one is called like a column of the queue), then:",
    "leases": "The leases of a queue that hold messages or are not proven yet.",
    "dead_letters": "The dead letters of a queue that nobody has settled. Of a dead-letter queue: where its messages come from, "
    "and why. It has the columns of `messages`, and:",
    "history": "The control log: every record of what happened to queues. All queues, unless you name one.",
    "sink_commits": "The batches that were appended to sinks, or may be, the newest first. All queues, unless you name one.",
    "table_changes": "The commits of [followed tables](../guide/follow.md) that were passed over or skipped, in whole or in part, "
    "the newest first. All message types, or that of the queue that you name.",
    "subscriptions": "The subscriptions of a queue.",
    "status": "One row for each queue, or for the one that you name. Its columns are the [figures of a queue](status.md).",
}

#: Columns of views and rows; with a view's name where a word means something else there.
COLUMNS = {
    "bookmark": "The message's number.",
    "topic": "The topic that it was published under.",
    "publisher": "Who published it; a name that begins with `~` stands for a publish without one.",
    "sequence": "The publisher's number for it.",
    "published_at": "When it was published, by the publisher's clock.",
    "expires_at": "When it expires by its publisher's word; NULL for never.",
    "origin": "The instance that it was first published to. Only where the journal is an [instance](../guide/several-sites.md).",
    "origin_bookmark": "Its number there. Only of an instance.",
    "owner": "The instance that may deliver it, of a dead letter the one that may redrive it; NULL for a barrier, and in a queue "
    "that is not replicated. Only of an instance.",
    "state": "Where it is in [its life](../concepts/life-of-a-message.md).",
    "subscription": "Who holds it, or who is meant.",
    "lease": "The number of the lease.",
    "leased_until": "When the lease ends, unless it is renewed.",
    "due_at": "When a delayed message comes back.",
    "history.due_at": "The time that the record sets: the end of a lease, or of a delay.",
    "delivery_count": "The deliveries that count, with this one. One that ended with its consumer may not, so 1 may be the second.",
    "cancel_count": "How often it was cancelled.",
    "priority": "Its rank where the queue has a `priority`.",
    "is_barrier": "Whether it is a barrier.",
    "reason": "Why it is a dead letter.",
    "history.reason": "Why it happened.",
    "error": "The last error that was told.",
    "removed_at": "When it left the queue.",
    "messages": "How many messages the lease still holds.",
    "attempt": "The number of the attempt; the next one of the subscription has a higher one.",
    "sink": "The table, or the folder of the message type in the journal where it is a topic.",
    "sink_commits.state": "`landed`, `fenced` where it never will, or `in doubt`.",
    "sink_commits.messages": "How many messages stand there.",
    "version": "The version of the table that brought them, where it is known.",
    "table": "The table.",
    "table_changes.version": "The version of the table; of versions that were skipped, the first.",
    "last_version": "The last of them; otherwise the same version.",
    "operation": "What its writer calls it, such as DELETE; NULL for versions that were skipped.",
    "table_changes.kind": "`change`: rows were deleted, updated or overwritten. `old rows`: rows that were there, written anew or "
    "put back. `no rows`: nothing of it could be a message. `skipped`: somebody said so with `sparkq follow`.",
    "rows": "How many rows it brought at most that did not enter; NULL where nobody looked.",
    "recorded_at": "When the coordinator recorded it; NULL, as its number, where it has not yet.",
    "prepared_at": "When the coordinator was asked.",
    "decided_at": "When it heard what became of it.",
    "granted_at": "When the lease was granted.",
    "proven": "Whether Spark has committed its batch.",
    "filter": "The subscription's filter; NULL for none.",
    "max_backlog": "The subscription's `maxBacklog`.",
    "backlog": "How many messages it holds and has not settled.",
    "last_seen_at": "When its query called last, as far as its coordinator tells; without one, when its last record was made.",
    "incarnation": "Which start of its query is the newest.",
    "ack_mode": "`auto` or `explicit`: a stream; `receive`: a receiver, in plain Python.",
    "record": "The record's number in the control log; `recordAsOf` takes it.",
    "epoch": "The coordinator's reign that wrote it.",
    "at": "When, by the coordinator's clock.",
    "kind": "What happened.",
    "message_type": "The message type that is meant.",
    "queue": "The queue that is meant.",
    "ranges": "The bookmarks that are meant: from `first`, up to `until` without it.",
    "detail": "What else the record says, as JSON.",
}
