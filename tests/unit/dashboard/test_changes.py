"""What people change from the page: first told, then confirmed, then done by the client."""

from __future__ import annotations

import html
import logging
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode

import pytest

from spark_queue.dashboard import changes
from spark_queue.dashboard.changes import VERBS, ChangeRequest, Changes, StartedChange
from spark_queue.dashboard.formatting import instant
from spark_queue.errors import CallerError, CoordinatorError
from tests.unit.dashboard.changing import QUEUE, Held, confirmed, ended


def test_a_group_is_redriven_after_it_was_told_how_many(held: Held) -> None:
    form = {"verb": "redrive", "of": "letters", "group": held.group("card declined")}
    asked, shown = confirmed(held.visitor, f"{QUEUE}/changes", form)
    assert "6 dead letters would go back to queue &#39;BILLING&#39;." in asked
    assert "Redrive 6 messages" in asked
    # People know letters by what failed and when, not by bookmarks.
    for name, text in (("Reason", "forced expire"), ("Died", f"{instant(held.at(2))} to {instant(held.at(2))} UTC")):
        assert f"<dt>{name}</dt><dd>{text}</dd>" in asked
    assert '<dt>Error</dt><dd class="mono">card declined</dd>' in asked
    assert "bookmark" not in asked
    assert "6 dead letters are back in queue &#39;BILLING&#39;, 0 were skipped." in shown.text
    assert held.asked == ["FindDeadLetters", "Redrive"]
    assert held.journal.queue("BILLING").status().dead_letters == 4


def test_to_ask_changes_nothing(held: Held) -> None:
    for verb in VERBS:
        asked = held.visitor.change(f"{QUEUE}/changes", {"verb": verb, "of": "letters"})
        assert asked.status == 200
        assert "Nothing was changed yet." in asked.text
    assert held.asked == []


def test_a_group_is_settled_where_its_letters_wait(held: Held) -> None:
    form = {"verb": "settle", "of": "letters", "group": held.group("timeout")}
    asked, shown = confirmed(held.visitor, f"{QUEUE}/changes", form)
    assert "4 acknowledged" in asked
    assert "Of queue &#39;BILLING_FAILED&#39; 4 acknowledged." in shown.text
    assert held.journal.queue("BILLING_FAILED").status().queue_depth == 6


def test_messages_are_purged_and_settled_by_filter(held: Held) -> None:
    asked, shown = confirmed(held.visitor, "/j/shop/queues/SHIPPING/changes", {"verb": "purge", "where": "amount > 7"})
    assert "4 messages would be purged" in asked
    assert "4 messages were purged from queue &#39;SHIPPING&#39;" in shown.text
    form = {"verb": "settle", "where": "amount = 5", "outcome": "expire"}
    _, shown = confirmed(held.visitor, "/j/shop/queues/SHIPPING/changes", form)
    assert "2 expired" in shown.text


def test_a_queue_is_paused_and_unpaused_after_it_was_told_what_that_does(held: Held) -> None:
    assert "Unpause …" not in held.visitor.get(QUEUE).text
    asked, shown = confirmed(held.visitor, f"{QUEUE}/changes", {"verb": "pause"})
    assert "would grant nothing until it is unpaused. Leased messages are not affected." in asked
    assert "Pause the queue" in asked
    assert "Queue &#39;BILLING&#39; is paused." in shown.text
    assert held.journal.queue("BILLING").status().paused
    held.visitor.followers[0].refresh()
    page = held.visitor.get(QUEUE).text
    assert ("Unpause …" in page, "Pause …" in page) == (True, False)
    _, shown = confirmed(held.visitor, f"{QUEUE}/changes", {"verb": "unpause"})
    assert "Queue &#39;BILLING&#39; grants again." in shown.text
    assert held.asked == ["Pause", "Unpause"]
    assert not held.journal.queue("BILLING").status().paused


def test_dead_letters_are_redriven_by_filter(held: Held) -> None:
    form = {"verb": "redrive", "of": "letters", "where": "amount < 3"}
    _, shown = confirmed(held.visitor, "/j/shop/queues/BILLING_FAILED/changes", form)
    assert "3 dead letters are back in queue &#39;BILLING&#39;" in shown.text


def chosen(held: Held, since: float, until: float, **more: str) -> dict[str, str]:
    """Return what an address or a form says of dead letters of some minutes, as a field for a time writes them."""
    times = {name: held.at(minute) for name, minute in (("since", since), ("until", until))}
    return {**{name: f"{datetime.fromtimestamp(at_ms / 1_000, UTC):%Y-%m-%dT%H:%M:%S}" for name, at_ms in times.items()}, **more}


def test_letters_of_a_time_and_an_error_are_shown_and_redriven(held: Held) -> None:
    held.expire("BILLING", range(10, 12), "card declined", 30)
    held.commit()
    held.visitor.followers[0].refresh()
    asked = chosen(held, 20, 40)
    page = held.visitor.get(f"{QUEUE}/dead-letters?{urlencode(asked)}").text
    assert re.search(r"2 of 12 in 1 group\b", page)
    assert "timeout" not in page
    form = {"verb": "redrive", "of": "letters", "group": held.group("card declined"), **asked}
    told, shown = confirmed(held.visitor, f"{QUEUE}/changes", form)
    assert "2 dead letters would go back" in told
    assert f"from {asked['since']} until {asked['until']} UTC" in told
    # Those that died at another time are none of its.
    assert f"<dt>Died</dt><dd>{instant(held.at(30))} to {instant(held.at(30))} UTC</dd>" in told
    assert "2 dead letters are back" in shown.text
    form = {"verb": "redrive", "of": "letters", **chosen(held, 1, 10, error="time")}
    _, shown = confirmed(held.visitor, f"{QUEUE}/changes", form)
    assert "4 dead letters are back" in shown.text
    assert held.journal.queue("BILLING").status().dead_letters == 6


def test_letters_of_a_time_are_settled_without_a_filter(held: Held) -> None:
    form = {"verb": "settle", "of": "letters", "error": "time"}
    answer = held.visitor.change(f"{QUEUE}/changes", {**form, "where": "amount > 0"})
    assert (answer.status, "without a filter" in answer.text) == (400, True)
    _, shown = confirmed(held.visitor, f"{QUEUE}/changes", form)
    assert "Of queue &#39;BILLING_FAILED&#39; 4 acknowledged." in shown.text


def test_yesterday_is_one_step_away(held: Held) -> None:
    page = held.visitor.get(f"{QUEUE}/dead-letters").text
    [query] = re.findall(r'href="(\?[^"]*)">Yesterday<', page)
    asked = dict(parse_qsl(html.unescape(query)[1:]))
    since, until = (datetime.fromisoformat(f"{asked[name]}Z") for name in ("since", "until"))
    assert (until - since, until.hour) == (timedelta(days=1), 0)
    assert until <= datetime.now(UTC) < until + timedelta(days=1, minutes=1)
    assert held.visitor.get(f"{QUEUE}/dead-letters{html.unescape(query)}").status == 200


@pytest.mark.parametrize("given", ["yesterday", "2026-02-30", "0000-00-00T00:00", "9999-12-31T23:59:59-23:59"])
def test_a_time_that_is_none_is_refused_by_name(held: Held, given: str) -> None:
    answer = held.visitor.get(f"{QUEUE}/dead-letters?since={given}")
    assert (answer.status, "BAD_VALUE" in answer.text) == (400, True)


def test_another_number_than_was_shown_is_shown_again(held: Held) -> None:
    form = {"verb": "redrive", "of": "letters", "confirmed": "99"}
    answer = held.visitor.change(f"{QUEUE}/changes", form)
    assert answer.status == 200
    assert "The number has changed." in answer.text
    assert held.asked == []


@pytest.mark.parametrize(
    "form",
    [
        {"verb": "drop"},
        {"verb": "settle", "outcome": "lose"},
        {"verb": "redrive", "per_second": "0"},
        {"verb": "redrive", "per_second": "fast"},
        {"verb": "purge", "where": "amount >"},
    ],
)
def test_a_form_that_is_wrong_is_refused_by_name(held: Held, form: dict[str, str]) -> None:
    answer = held.visitor.change(f"{QUEUE}/changes", form)
    assert (answer.status, held.asked) == (400, [])
    assert re.search("BAD_VALUE|EXPRESSION_INVALID", answer.text)


def test_letters_that_lie_in_no_queue_are_only_redriven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(tmp_path, monkeypatch)
    answer = held.visitor.change("/j/shop/queues/SHIPPING/changes", {"verb": "settle", "of": "letters"})
    assert answer.status == 400
    assert "they are in no dead-letter queue" in answer.text.replace("these dead letters", "they")


def test_a_cancelled_change_says_what_was_done(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "PART_MESSAGES", 2)
    rows = held.engine.state.ledger("BILLING_FAILED").entered
    change = StartedChange("shop", ChangeRequest(verb="settle", queue="BILLING_FAILED", rows=rows), len(rows))
    change.cancel()
    change.work(held.journal)
    assert (change.state, change.done) == ("cancelled", 2)
    assert change.text == "Cancelled after 2 of 10. Changes made so far stay."
    assert held.asked == ["Settle"]


def test_a_change_claims_nothing_that_somebody_else_has_done(held: Held) -> None:
    wish = ChangeRequest(verb="settle", queue="BILLING_FAILED", rows=held.engine.state.ledger("BILLING_FAILED").entered)
    held.expire("BILLING_FAILED", range(3), "by hand", 4)
    change = StartedChange("shop", wish, 10)
    change.work(held.journal)
    assert (change.state, change.text) == ("done", "Of queue 'BILLING_FAILED' 7 acknowledged, 3 repeated.")


def test_a_refusal_is_what_a_failed_change_says(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise CallerError("UNKNOWN_SUBSCRIPTION", queue="BILLING", subscription="x", nearest="")

    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", refuse)
    change = StartedChange("shop", ChangeRequest(verb="purge", queue="SHIPPING"), 1)
    change.work(held.journal)
    assert change.state == "failed"
    assert "UNKNOWN_SUBSCRIPTION" in change.text


def test_cancel_is_a_form_of_its_own(held: Held) -> None:
    begun = held.visitor.change(f"{QUEUE}/changes", {"verb": "redrive", "of": "letters", "confirmed": "10"})
    path = begun.headers["location"]
    assert held.visitor.post(f"{path}/cancel", {}).status == 403
    assert held.visitor.change(f"{path}/cancel", {}).status == 303
    assert held.visitor.change(path.replace(path[-5:], "xxxxx") + "/cancel", {}).status == 404
    ended(held.visitor, path)


def test_no_other_page_waits_while_a_form_is_understood(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    """To group a million dead letters, or to wait for a fold, takes time."""
    threads, wished = list[threading.Thread](), changes._wish

    def noted(*given: Any) -> ChangeRequest:
        threads.append(threading.current_thread())
        return wished(*given)

    monkeypatch.setattr(changes, "_wish", noted)
    assert held.visitor.change(f"{QUEUE}/changes", {"verb": "redrive", "of": "letters"}).status == 200
    assert [each is threading.main_thread() for each in threads] == [False]


class Absent:
    """No coordinator answers, so many times."""

    def __init__(self, held: Held, monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
        self.left, self._answer = times, held._answer
        monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", self)

    def __call__(self, *asked: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            raise CoordinatorError("COORDINATOR_UNAVAILABLE", path="shop", reason="it did not report within 60 s.", log="log")
        return self._answer(*asked, **options)


@pytest.mark.parametrize("verb", ["redrive", "settle", "purge", "pause"])
def test_a_change_waits_for_a_coordinator_that_is_being_started(held: Held, monkeypatch: pytest.MonkeyPatch, verb: Any) -> None:
    monkeypatch.setattr(changes, "_KNOCK_S", 0)
    absent = Absent(held, monkeypatch, times=3)
    change = StartedChange("shop", ChangeRequest(verb=verb, queue="BILLING", where=None if verb == "pause" else "amount < 3"), 3)
    change.work(held.journal)
    assert (change.state, absent.left) == ("done", 0), change.text


def test_a_change_that_failed_stands_in_the_log_when_its_page_was_left(
    held: Held, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(changes, "START_S", 0)
    Absent(held, monkeypatch, times=1)
    group = held.group("card declined")
    _, shown = confirmed(held.visitor, f"{QUEUE}/changes", {"verb": "redrive", "of": "letters", "group": group})
    assert "[COORDINATOR_UNAVAILABLE]" in shown.text
    with caplog.at_level(logging.INFO, "spark_queue.dashboard.changes"):
        _, done = confirmed(held.visitor, "/j/shop/queues/SHIPPING/changes", {"verb": "purge", "where": "amount > 7"})
    assert "4 messages were purged" in done.text
    for path in ("/j/shop/log", "/j/shop/log?queue=BILLING", QUEUE):
        page = held.visitor.get(path).text
        assert "redrive of queue &#39;BILLING&#39;, reason: forced expire, error: card declined, died: " in page
        assert "it did not report within 60 s." in page
        assert '<span class="badge bad">failed</span>' in page
        assert ("purge of queue &#39;SHIPPING&#39;, filter: amount &gt; 7" in page) == (path == "/j/shop/log")
    assert "Changes from this page" not in held.visitor.get("/j/shop/queues/REFUNDS").text
    levels = [(each.levelname, each.message.partition(".")[0]) for each in caplog.records]
    purge = "Journal 'shop': purge of queue 'SHIPPING', filter: amount > 7"
    assert levels[:1] == [("WARNING", levels[0][1])]
    assert levels[1:] == [("INFO", f"{purge} has begun"), ("INFO", f"{purge}, done")]


def test_a_change_ends_in_good_order_with_the_process(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()

    def answer(*asked: Any, **options: Any) -> Any:
        waits.set()
        raise CoordinatorError("COORDINATOR_UNAVAILABLE", path="shop", reason="nobody answered.", log="log")

    monkeypatch.setattr("spark_queue.client.coordinator_client.call_once", answer)
    known = Changes()
    change = known.start(held.journal, "shop", ChangeRequest(verb="pause", queue="BILLING"), 1)
    assert waits.wait(30)
    known.end()
    assert (change.state, change.text) == ("cancelled", "Cancelled after 0 of 1. Changes made so far stay.")
    assert known.of("shop") == known.of("shop", "BILLING") == [change]
    assert known.of("shop", "SHIPPING") == known.of("other") == []


@pytest.mark.parametrize("name", ["a#b", "a?b", "a b", "ä"])
def test_the_way_to_a_change_leads_through_any_name_of_a_journal(name: str) -> None:
    change = StartedChange(name, ChangeRequest(verb="pause", queue="BILLING"), 1)
    assert unquote(changes._shown_at(change).headers["location"]) == f"/j/{name}/changes/{change.key}"
    assert not {"#", "?", " "} & set(changes._shown_at(change).headers["location"])
