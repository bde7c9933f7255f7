"""Bugs in rights: who may ask what, and what is hidden from whom."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_TABLE = ("tests/unit/coordinator/test_rights.py",)
_WORLDS = ("tests/simulation/test_principals.py",)
_HIDDEN = ("tests/unit/coordinator/test_hidden.py",)
_OPEN = ("tests/integration/test_rights.py",)

RIGHTS = (
    Mutant(
        "a repeat whose topic has moved is published as if it were new",
        "            if call.repeated_in not in (None, pending.message_type):\n", "            if False:\n",
        ("tests/unit/client/test_changed_definitions.py",),
    ),
    Mutant(
        "of two definitions at once the later undoes what the earlier changes",
        "    if command.planned_on not in (None, state.definitions.digest):\n", "    if False:\n",
        ("tests/integration/test_apply_dry_run.py",),
    ),
    Mutant(
        "an open publisher goes by the rights of when it was opened",
        "        if newest is not None and newest > self.definitions:\n", "        if newest is None:\n", _OPEN,
    ),
    Mutant(
        "a batch into a topic goes by the rights of its beginning",
        "            self._check_writes(self._journal.definitions())\n", "            pass\n", _OPEN,
    ),
    Mutant(
        "a barrier goes to nobody while its reader has no right",
        "matching = work.entitled(subscription, matching) if work.may_read(subscription) else matching",
        "matching = work.entitled(subscription, matching)", ("tests/unit/coordinator/test_hidden.py",),
    ),
    Mutant(
        "whoever works on a lease is forgotten",
        " and not _holds(work.ledger, subscription.name)", "", ("tests/unit/core/test_scenarios.py",),
    ),
    Mutant(
        "a retention may be shorter than signs of life are apart",
        "    return max(ledger.definition.subscription_retention_ms, ledger.definition.lease_period_ms)\n",
        "    return ledger.definition.subscription_retention_ms\n", ("tests/unit/core/test_scenarios.py",),
    ),
    Mutant(
        "a dry run of new definitions asks less than applying them",
        "    _refuse_removals(now, wanted, remove, leave)\n",
        "    if not dry_run:\n        _refuse_removals(now, wanted, remove, leave)\n",
        ("tests/unit/client/test_queue.py", "tests/unit/cli/test_apply.py"),
    ),
    Mutant(
        "whoever asks may try new definitions out",
        "    if known is None or not known.administers:\n", "    if known is None:\n", ("tests/unit/client/test_dry_runs.py",),
    ),
    Mutant(
        "the table that a message type left behind is not looked at",
        "            journal.check_message_table(name, message_type.columns, is_unused=now.state.is_unused(name))\n",
        "            pass\n",
        ("tests/unit/cli/test_apply.py",),
    ),
    Mutant(
        "who may read may also purge",
        "that match a filter. Answered with `Purged`.\"\"\"\n",
        "that match a filter. Answered with `Purged`.\"\"\"\n\n    right = READ\n", _TABLE,
    ),
    Mutant(
        "a right on one queue is one on all",
        "any(right in each.rights and topic_matches(each.queues, name)", "any(right in each.rights", _TABLE,
    ),
    Mutant("an expired token goes on", "or now_ms < self.expires_ms:", "or now_ms >= 0:", _TABLE),
    Mutant("a withdrawn token goes on", " or who.token_hash not in principal.token_hash:", ":", _TABLE),
    Mutant(
        "a refused token is not read again",
        "        self._token = self._read_token()\n        if", "        if", ("tests/unit/coordinator/test_server_principals.py",),
    ),
    Mutant(
        "a reader settles whatever it names together with its own lease",
        "if not all(_holds(lease, first, until)", "if not all(True", _TABLE,
    ),
    Mutant(
        "a subscription is whoever's names it",
        "        or known.principal == principal.name\n", "        or known.principal is not None\n", _TABLE,
    ),
    Mutant("a refused poll has a share", " and self._refusal(call, now_ms) is None:", ":", _TABLE),
    Mutant(
        "a grant forgets what is hidden",
        "        for text in subscription.entitlement:\n", "        for text in ():\n", _HIDDEN,
    ),
    Mutant(
        "a purge removes what is hidden",
        "    rows = lost | work.visible_to_caller((in_queue(", "    rows = lost | ((in_queue(", _HIDDEN,
    ),
    Mutant("of a subscription of before, hidden messages are resumed", " or not work.row_filters():", " or True:", _HIDDEN),
    Mutant(
        "the figures of a queue count what is hidden",
        "(who is None or not state.definitions.row_filters(who.principal, poll.queue))", "True", _HIDDEN,
    ),
    Mutant("the last one who administers may expire", "each.administers and each.expires_ms is None", "each.administers", _TABLE),
    Mutant(
        "new definitions hide nothing from subscriptions that are there",
        " and entitlement != each.entitlement:", " and False:", _HIDDEN,
    ),
    Mutant(
        "a released barrier is given to who may not see it any more",
        "            _let_go_of_hidden_barriers(work, each)\n", "", _HIDDEN,
    ),
    Mutant(
        "what a filter hides is settled by hand",
        "_seen_of(work, given) if work.row_filters() else", "work.ledger.entered if True else", _HIDDEN,
    ),
    Mutant(
        "a right that was taken away goes on for settling",
        "    may = _has(definitions, principal, request.right, request)\n",
        "    may = _has(definitions, principal, request.right, request) or isinstance(request, commands.Settle | commands.Purge)\n",
        ("tests/unit/coordinator/test_rights.py",),
    ),
    Mutant("a poll tells figures of what is hidden", "and (who is None or not", "and (who is not None or not", _WORLDS),
    Mutant(
        "where there are few principals all are refused",
        "    if principal is None or", "    if principal is None or len(definitions.principals) < 4 or", _WORLDS,
        within="_asking",
    ),
    Mutant(
        "the page lets somebody confirm a pause who may not pause",
        "            queue.attempts_in_doubt()\n", "            pass\n", ("tests/unit/dashboard/test_change_rights.py",),
    ),
)  # fmt: skip
