"""Views: a queue's content and its history, now or at any past moment (DESIGN 7, 15.13).

They fold the control log and start nothing, so that looking never changes a journal. Bodies of messages are read
only for the rows and columns that are shown.
"""

from __future__ import annotations

from spark_queue.core.replies import QueueStatus
from spark_queue.views.check import QueueCheck, check_queue
from spark_queue.views.explain import MessageEvent, MessageHistory, explain
from spark_queue.views.journal_view import JournalView, queue_findings, queue_status, state_at
from spark_queue.views.tables import read_view, view_schema

__all__ = [
    "JournalView",
    "MessageEvent",
    "MessageHistory",
    "QueueCheck",
    "QueueStatus",
    "check_queue",
    "explain",
    "queue_findings",
    "queue_status",
    "read_view",
    "state_at",
    "view_schema",
]
