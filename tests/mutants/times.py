"""Bugs in what is counted from when, and in who is alive (DESIGN 15.3)."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TIMES = ("tests/unit/journal/test_publication_times.py",)

TIMES: tuple[Mutant, ...] = (
    Mutant(
        "what waited for a coordinator is as young as its start",
        "published_at_ms = max(since_ms, min(at_ms, committed_at_ms))", "published_at_ms = at_ms", _TIMES,
    ),
    Mutant(
        "a publisher's wrong clock makes messages old while a coordinator looks on",
        "max(known.published_until_ms, self._seen_at_ms.get(message_type, 0))",
        "known.published_until_ms", _TIMES,
    ),
    Mutant(
        "a message expires by its publisher's clock",
        ".entered_by(now_ms - queue.expiration_ms)",
        ".published_by(now_ms - queue.expiration_ms)", ("tests/unit/core/test_scenarios.py",),
    ),
    Mutant(
        "a letter that dies again has the age of an earlier death",
        "    ledger.begun.replace(again | new, record.at_ms)\n",
        "    ledger.begun.add({record.at_ms: again | new})\n", ("tests/unit/core/test_questions.py",),
    ),
    Mutant(
        "a question changes what it asks about",
        "        kept = self._kept_after(at_ms, gone)\n",
        "        self.forget_gone(at_ms, gone=gone)\n        kept = self._kept_after(at_ms, gone)\n",
        ("tests/unit/core/test_expirations.py",),
    ),
    Mutant(
        "an idle consumer looks like one that was killed",
        "return max(recorded_ms, min(now_ms, heard.get(queue, {}).get(subscription, 0)))",
        "return recorded_ms", ("tests/unit/views/test_heard.py",),
    ),
    Mutant(
        "a filter is told of the wrong letter's error",
        "        numbers[self._bookmarks[low:high] - segment.first] = self._numbers[low:high]\n",
        "        numbers[: high - low] = self._numbers[low:high]\n", ("tests/unit/views/test_letter_filters.py",),
    ),
    Mutant(
        "a queue whose order keys are lost has no figures",
        "if set_aside.code not in MESSAGE_FILE_CODES or view.counted is None:", "if True:", ("tests/unit/views/test_damage.py",),
    ),
    Mutant(
        "a word of a publisher passes for a look at the head of its log",
        "            if read < GROUP_VERSIONS and not is_at_end:\n", "            if read < GROUP_VERSIONS:\n",
        ("tests/unit/journal/test_publication_times.py",),
    ),
    Mutant(
        "a word of a publisher lets the coordinator look behind its version",
        "                if is_at_end := entry.version == until:\n                    break\n", "",
        ("tests/unit/coordinator/test_looks.py",),
    ),
)  # fmt: skip
