"""Scenarios: the life of a queue as text, one step per line, run against the core with a clock that moves only when told.

::

    define
      [message_types.json]
      topics = ["ORDERS"]
      [queues.ORDER]
      underlying_topic = "ORDERS"
      max_deliveries = 2

    publish ORDERS 0..9
    planner p1 ORDER/s1 backlog=100
    next p1 limit=4                    -> lease 1: 0..3
    rows p1                            -> 0..3
    tick 61s
    state ORDER available 0..9
    next p1 limit=4 finished=7         -> CHECKPOINT_FOREIGN "which has granted 1"

Messages are named by bookmark, as in records and errors, so the first is 0; ``0..3`` is four messages, and several
ranges stand side by side (``0..3 7``). Durations carry a unit. ``#`` begins a comment. What a step answers is compared with
the text after ``->`` where there is one; a refusal is its code, and a quoted text after it must stand in the message. A refusal
that no ``->`` names fails the scenario.

After every line this is checked: a refused step changed nothing; the invariants hold; folding all committed records from the
beginning gives the state that stands; so does folding on from a snapshot.

Where there are several instances, each with a journal of its own, a step names those at which it is taken, one after the other::

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
    at virginia: next v limit=2        -> nothing
    exchange
    at frankfurt virginia: owner WORK 0..1 virginia
    at virginia: next v                -> lease 1: 0..1

Each has bookmarks of its own: what it publishes and what it pulls, as they came. All have one clock. What is checked after a line
is checked at the instances that it may have changed.

Steps that act
    ``define [again] [without=Q,R] [Q.KEY=VALUE …] [reset=Q,R]``
        Replaces the definitions by the indented TOML lines below it; with `again` by those of the newest `define` that has any.
        Some queues are left out, and some keys of others said otherwise.
    ``publish TOPIC ROWS [expires=30s] [ago=2h] [after=30s] [NAME=VALUE …] [, TOPIC ROWS …]``
        One message file, which enters at once, or that long after it was published; its delay begins then. ROWS must
        continue the message type's bookmarks. The messages have the named attributes, which expressions compare
        (``"price > 3 and region = EU"``) or give (``price``); the rest is NULL.
    ``merge TYPE``
        Compaction puts the messages of a message type into one file; the old files are lost.
    ``draw P Q/S [backlog=n] [mode=explicit] [filter=EXPRESSION] [available_now] [ends]``, ``attach P``, ``planner P …``
        A planner start of subscription S of queue Q draws its place in the order, attaches, or does both. With mode=receive it is a
        receiver, whose subscription may end with it.
    ``next P [limit=n] [finished=n] [lost] [overrun=ROW]``
        Asks for work, and waits where nothing is there, so that owners are asked for theirs. `finished` is the newest lease in
        the checkpoint of the subscription, unless given; a lost reply does not get there. A receiver works on still what has
        `overrun` the limit of its lease.
    ``waits P [limit=n] [overrun=ROW]``
        Its poll waits at the coordinator: whoever asks next, this one is known to be there. That of a receiver whose run is over
        ``has ended``.
    ``held P [OUTCOME ROWS [lease=n] [failed] [after=5s] [error=…] , …] [request=ID]``
        A receiver settles what it has, under its newest lease unless given; answers what came too late, and what has become of it.
    ``checkpoint Q/S n``
        Somebody changed the checkpoint: 0 is an empty one.
    ``rows P [lease=n]``, ``taken P [lease=n]``, ``renew P [lease=n]``, ``leave P [taken=n]``, ``unsubscribe Q/S``
        As named; the lease is that of the checkpoint, unless given. `taken`: Spark was given the rows as they came with the grant.
        ``leave P [begun ROWS ,] [keeps ROWS]`` is a receiver's.
    ``pause Q``, ``unpause Q``
        By somebody's word.
    ``start P [as RUN] [sink]``
        fn begins; RUN names what it speaks for (`P`, unless given). With `sink` it appends what it gives to one, and is told
        whether to, and what is in doubt.
    ``end RUN [OUTCOME ROWS [after=5s] [error=…] , …] [failed=…] [stopped] [on_error=cancel] [early]``
        fn ends, with outcomes acknowledge, cancel, expire, with what it raised, or since it was stopped. `early` settles at once.
    ``prepare RUN [into=TABLE] [version=n] [request=ID] [OUTCOME ROWS [after=5s] [error=…] , …]``
        What it gave is about to be committed to a table, whose newest version of the transaction id is `version`.
    ``landed Q/S n [version=n] [forced]``, ``fenced Q/S n [forced]``, ``unreadable Q/S n error=… [read]``
        Somebody has decided about attempt n of a subscription, or could not.
    ``prove RUN``
        The listener reports that Spark committed the run's batch.
    ``settle Q [lease=n] OUTCOME ROWS [after=5s] [error=…] [lease=n] , …``, ``settle Q where=FILTER OUTCOME [after=5s] [error=…]``
        Settles by hand: all that is listed or nothing, or what matches; with `of_owner` also what another instance owns.
    ``purge Q [where=FILTER]``
        Removes what is not leased.
    ``redrive Q [ROWS] [where=FILTER]``
        Gives dead letters back: those named, those that match, or all.
    ``tick [61s]``, ``wait 61s``
        Time passes; the first also does what is due then, at all instances where it names none.
    ``crash``
        The coordinator is gone; the next one folds what was committed and takes over.
    ``set_aside Q``, ``revive Q``
        Something raised when Q was worked on, so that it has no part in anything; somebody has it taken back in.
    ``uncommitted STEP``
        The coordinator decides the step, and is gone before the commit.

``again`` repeats a planner's call under its last number, ``call=n`` gives it a number.

Steps of several instances
    ``instances NAME[<-PEER,…] …``
        From now on there are these, without definitions. Each pulls from the peers behind its arrow, which need not be there, or
        from all others.
    ``define … [pulls=Q,R]``
        As above, at all that are there where it names none. An instance adds its own name, and its peers with all that they publish
        under topic T; it pulls what becomes of the messages of all queues, of those that `pulls` names, or with ``pulls=none`` of
        none. Other keys of a peer may stand in the block.
    ``exchange``
        Everybody pulls from all of its peers until nothing is new.
    ``pull PEER [again]``
        Takes over what a peer has committed since the last time, or all of it from the beginning.
    ``send PUBLISHER NUMBERS [body=TEXT]``
        A named publisher gives its messages with these numbers; answers those that are no repeats.
    ``ask Q ORIGIN ROWS , … [requester=…] [owner=…] [limit=n] [life=n]``
        Reads in virginia's log that somebody, virginia unless named, asks an owner, this one unless named, for messages; they are
        named by where they were published, and their bookmarks there.
    ``look [NAME=n …] [behind]``, ``miss 31s [behind]``
        Looks at all beacons, of which some have risen to n; nobody's rises for a while. What can be read is pulled, or with
        `behind` it is not.
    ``proxied Q on|off [owner=NAME]``
        Allows to claim messages of an owner that is lost, or ends that.
    ``forget PEER``, ``drain PEER [record=n]``
        A peer is gone for good; own messages go to a peer, which is asked whether it has pulled the `record` that says so.

``crash`` at an instance lets the next coordinator look at once.

Steps that look at instances
    ``owner Q ROWS NAME``, ``value Q ROWS present|dead|gone [life=n] [term=n] [owner=NAME]``
        Who owns messages; all that an instance says of each.
    ``named Q STATE [ORIGIN ROWS , …]``, ``names ROW ORIGIN/BOOKMARK …``
        All the messages in a state, as they are named everywhere; all the names of one.
    ``claims Q [ROWS]``
        What is claimed, and not granted before another look.
    ``requests Q [OWNER ROWS , …]``
        What owners were asked for and has not come.
    ``came Q [PEER=n …]``, ``gave Q [PEER=n …]``
        How many messages came by transfers of which peer told, and how many went to each.
    ``forgotten [PEER …]``
        Who is gone for good.

Steps that look
    ``state Q [available ROWS] [leased ROWS] [delayed ROWS] [held ROWS] [inactive ROWS] [remote ROWS] [dead ROWS] [removed ROWS]``
        States that are left out are empty; `removed` is compared where it is named.
    ``counts Q ROWS [deliveries=n] [cancels=n]``
        Each of the messages was delivered and cancelled that often.
    ``lease Q n [held ROWS] [claim ROWS] [due=60s]``
        What a lease holds, and may still cover; when it ends, from now.
    ``doubts Q [S n TABLE [ERROR] , …]``
        All the attempts that are in doubt.
    ``barriers Q/S [ROWS] [deliveries=n]``, ``given_up Q n``
        The barriers that were released to a subscription and not received; how often the oldest was delivered. How many
        were given up.
    ``failed Q n``
        On how many messages an expression failed as they came.
    ``letters Q [ROWS REASON [error=…] [deliveries=n] [cancels=n] , …]``
        All the dead letters that the queue made, oldest first.
    ``standing Q [ROWS]``
        The dead letters that people are shown for it.
    ``alarm Q/S [ROWS] [probe=30s] [tells=TEXT]``
        The messages that failed alone since the last success of a subscription; with `probe` it pauses with an alarm, and tries
        the next lone message then, from now. TEXT stands in what the alarm says; ``nothing`` where there is none.
    ``lone Q [ROWS]``
        The messages that failed alone, and are tried alone from now on.
    ``age Q 5s``, ``age Q none``
        The age of the oldest message in the queue, as status shows it.
    ``removals Q REASON=n …``, ``due 5s``, ``due now``, ``due never``
        How many messages were removed so far by each reason; when the next timer is due, from now.
    ``retired TYPE [ROWS]``
        The messages that retention let go; their files are lost.
    ``status Q NAME=VALUE …``
        Figures of its status.
    ``alarms Q [SUBJECT TEXT , …]``
        The subjects of all of its alarms, and what stands in each.
    ``records KIND n``
        How many records of a kind the log has.
    ``route TOPIC``
        Answers the topic that a publish to TOPIC is written under.
"""

from __future__ import annotations

from tests.scenario.runner import Scenario, ScenarioError, run_scenario

__all__ = ["Scenario", "ScenarioError", "run_scenario"]
