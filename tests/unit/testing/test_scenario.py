"""A scenario must fail when its text is not true; otherwise it proves nothing."""

from __future__ import annotations

import pytest
from pyroaring import BitMap64

from tests.scenario import Scenario, ScenarioError, run_scenario
from tests.scenario.script import Words, read, rows_text

BEGINNING = """
define
  [message_types.json]
  topics = ["T"]
  [queues.Q]
  underlying_topic = "T"
publish T 0..9
planner p1 Q/s1
"""

UNTRUE = [
    ("next p1 limit=2 -> lease 1: 0..2", "answered 'lease 1: 0..1'"),
    ("next p1 finished=9", r"was refused: \[CHECKPOINT_FOREIGN\]"),
    ("next p1 finished=9 -> STALE_CALL", r"was refused: \[CHECKPOINT_FOREIGN\]"),
    ('next p1 finished=9 -> CHECKPOINT_FOREIGN "which has granted 5"', r"was refused: \[CHECKPOINT_FOREIGN\]"),
    ("next p1 -> STALE_CALL", "answered 'lease 1: 0..9'"),
    ("next p1 limits=3", "nothing takes 'limits=3'"),
    ("next p9", "p9"),
    ("teleport p1", "teleport"),
    ("publish T 3", "bookmark 10 is next"),
    ("state Q available 0..8", "available are 0..9"),
    ("state Q", "available are 0..9"),
    ("state Q available 0..9 removed 3", "removed are nothing"),
    ("counts Q 0..9 deliveries=1", r"deliveries are \[0\]"),
    ("letters Q 3 forced_expire", "there are 0"),
    ("removals Q acknowledged=1", "are {}$"),
    ("due 5s", "is never"),
    ("due now", "is at None ms"),
    ("route T -> U", "answered 'T'"),
    ("wait soon", "a duration with a unit"),
]


@pytest.mark.parametrize(("line", "reason"), UNTRUE, ids=[line for line, _ in UNTRUE])
def test_a_scenario_fails_where_a_line_is_not_true(line: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason) as caught:
        run_scenario(BEGINNING + line)
    assert str(caught.value).startswith(f"line 9: {line}")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("lease Q 1 held 0..2", "holds 0..1"),
        ("lease Q 1 claim 0", "claims 0..1"),
        ("lease Q 1 due=5s", "is due in 60000 ms"),
        ("lease Q 2", "2"),
        ("due 61s", "is in 60000 ms"),
    ],
)
def test_a_scenario_fails_where_a_lease_is_not_as_said(line: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        run_scenario(f"{BEGINNING}next p1 limit=2\n{line}")


def test_a_scenario_fails_where_a_dead_letter_is_not_as_said() -> None:
    for wrong in ("1 forced_expire error=bad", "0 max_cancels error=bad", "0 forced_expire", "0 forced_expire error=bad cancels=1"):
        with pytest.raises(ScenarioError, match="is DeadLetter"):
            run_scenario(f"{BEGINNING}settle Q expire 0 error=bad\nletters Q {wrong}")


INSTANCES = """
instances frankfurt virginia
define
  [message_types.json]
  topics = ["T"]
  [queues.WORK]
  underlying_topic = "T"
at frankfurt: publish T 0..2
exchange
at virginia: planner v WORK/s
wait 2s
at virginia: next v -> nothing
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("state WORK remote 0..2", "at which of frankfurt, virginia"),
        ("at tokyo: look", "tokyo"),
        ("at virginia state WORK remote 0..2", "at which of frankfurt, virginia"),
        ("at virginia: state WORK remote 0..1", "remote are 0..2"),
        ("at virginia frankfurt: state WORK remote 0..2", "available are 0..2"),
        ("at virginia: owner WORK 0..2 virginia", r"are {0: 'frankfurt'"),
        ("at virginia: value WORK 0 dead owner=frankfurt", r"are {0: MessageValue\("),
        ("at virginia: value WORK 0 present owner=frankfurt life=1", r"are {0: MessageValue\("),
        ("at virginia: value WORK 0 present owner=frankfurt term=1", r"are {0: MessageValue\("),
        ("at virginia: named WORK remote frankfurt 0..1", r"are \[\('uuid-of-frankfurt', 0\)"),
        ("at virginia: names 0 virginia/0", r"are \[\('uuid-of-frankfurt', 0\)\]"),
        ("at virginia: claims WORK 0", "are nothing"),
        ("at virginia: requests WORK", r"are {'frankfurt': '0..2'}"),
        ("at virginia: requests WORK frankfurt 0..1", r"are {'frankfurt': '0..2'}"),
        ("at virginia: forgotten frankfurt", r"are \[\]"),
        ("at virginia: came WORK frankfurt=1", "are {}"),
        ("at frankfurt: gave WORK virginia=1", "are {}"),
        ("at virginia: status WORK remote=2", r"are {'remote': '3'}"),
        ("at virginia: alarms WORK messages late", "are {}"),
        ("at virginia: records transfer_requested 2", "are 1"),
        ("at virginia: pull frankfurt -> nothing", "answered 'done'"),
        ("at virginia: pull tokyo", "tokyo"),
        ("at virginia: look -> nothing", "answered 'done'"),
        ("at virginia: miss 31s -> nothing", "answered 'done'"),
        ("at virginia: crash -> nothing", "answered 'done'"),
        ("at virginia: ask WORK frankfurt 0 -> nothing", "answered 'done'"),
        ("at virginia: proxied WORK on owner=tokyo", "UNKNOWN_PEER"),
        ("at virginia: proxied WORK maybe", "maybe"),
        ("at virginia: send app 1..2 -> 1", r"answered '1\.\.2'"),
        ("at frankfurt: drain virginia -> transferred 2", "answered 'transferred 3 at record"),
        ("at frankfurt: forget virginia -> claimed 1", "answered 'claimed 0'"),
        ("exchange -> nothing", "answered 'done'"),
        ("exchange virginia", "nothing takes 'virginia'"),
        ("tick 1s -> nothing", "answered 'done'"),
        ("wait soon", "a duration with a unit"),
        ("define again WORK.colour=red", "UNKNOWN_KEY"),
    ],
)
def test_a_scenario_of_instances_fails_where_a_line_is_not_true(line: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason) as caught:
        run_scenario(INSTANCES + line)
    assert str(caught.value).startswith(f"line 13: {line}")


def test_definitions_are_said_again_without_some_queues_and_with_other_keys() -> None:
    scenario = run_scenario(
        f"{INSTANCES}at virginia: define again WORK.max_deliveries=7 pulls=none\nat frankfurt: define again without=WORK"
    )
    frankfurt, virginia = (scenario.instances[name].world.state.definitions for name in ("frankfurt", "virginia"))
    assert (list(frankfurt.queues), virginia.queues["WORK"].max_deliveries) == ([], 7)
    assert (frankfurt.is_replicated("WORK"), virginia.is_replicated("WORK")) == (False, False)


def test_instances_pull_from_whom_their_arrow_names_or_from_all_others() -> None:
    instances = run_scenario("instances frankfurt<-virginia,sydney virginia tokyo<-").instances
    peers = {name: list(each.world.state.definitions.peers) for name, each in instances.items()}
    assert peers == {"frankfurt": ["virginia", "sydney"], "virginia": ["frankfurt", "tokyo"], "tokyo": []}


def test_a_scenario_of_instances_fails_where_the_state_of_one_is_not_the_fold_of_its_log() -> None:
    scenario = run_scenario(INSTANCES)
    scenario.instances["virginia"].world.state.queues["WORK"].subscriptions["s"].max_backlog = 5
    scenario.run("at frankfurt: look")
    for line in ("at virginia: look", "exchange"):
        with pytest.raises(ScenarioError, match="folding the log anew gives other queues"):
            scenario.run(line)


def test_a_scenario_fails_where_an_invariant_breaks() -> None:
    scenario = Scenario()
    scenario.run(BEGINNING)
    scenario.world.state.queues["Q"].entered.add(99)
    with pytest.raises(ScenarioError, match="entered and are in no state"):
        scenario.run("wait 1ms")


def test_a_scenario_fails_where_live_state_is_not_the_fold_of_the_log() -> None:
    scenario = Scenario()
    scenario.run(BEGINNING)
    scenario.world.state.queues["Q"].subscriptions["s1"].max_backlog = 5
    with pytest.raises(ScenarioError, match="folding the log anew gives other queues"):
        scenario.run("wait 1ms")


def test_a_crash_forgets_what_was_not_committed_and_nothing_else() -> None:
    scenario = run_scenario(f"{BEGINNING}next p1 limit=2\nuncommitted next p1 limit=2\ncrash")
    assert scenario.world.state.epoch == 3
    scenario.run("state Q leased 0..1 available 2..9")


def test_lines_blocks_comments_and_answers_are_told_apart() -> None:
    steps = list(read('# nothing\nput a "b c"  # why\n  x = 1\n\n  y = 2\ngo -> CODE "some text"  # because\n'))
    assert [(step.number, step.verb, step.words, step.expected) for step in steps] == [
        (2, "put", ("a", "b c"), None),
        (6, "go", (), "CODE some text"),
    ]
    assert steps[0].block.split() == ["x", "=", "1", "y", "=", "2"]


def test_words_are_taken_as_rows_options_and_clauses() -> None:
    words = Words(("a", "3", "5..7", "after=5s", "error=no, really,", "b", "9", "early"))
    assert words.flag("early")
    first, second = words.clauses()
    assert (first.take(), set(first.rows()), first.duration_ms("after"), first.option("error")) == (
        "a",
        {3, 5, 6, 7},
        5_000,
        "no, really",
    )
    assert (second.take(), set(second.rows()), second.number("n", 4)) == ("b", {9}, 4)
    with pytest.raises(ValueError, match="a word is missing"):
        second.take()


@pytest.mark.parametrize(("rows", "text"), [(set(), "nothing"), ({4}, "4"), ({0, 1, 2, 7, 9, 10}, "0..2 7 9..10")])
def test_rows_are_written_as_they_are_read(rows: set[int], text: str) -> None:
    assert rows_text(BitMap64(rows)) == text
