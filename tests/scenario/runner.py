"""Runs scenarios, and checks after every step what must always hold."""

from __future__ import annotations

from spark_queue.errors import SparkQueueError
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.deciding import due_by_all
from tests.scenario import acts, looks
from tests.scenario.script import Step, Words, compare, read
from tests.scenario.world import World
from tests.second_model.problems import of_records


class ScenarioError(AssertionError):
    """A step answered something else than its line says, or broke an invariant."""


class Scenario:
    """A scenario under way: text may be given in pieces.

    Attributes
    ----------
    world : World
        What it acts on, for what the language cannot say.
    """

    def __init__(self) -> None:
        self.world = World()

    def run(self, text: str) -> None:
        """Run the steps of `text`.

        Raises
        ------
        ScenarioError
            At the first line that does not hold.
        """
        for step in read(text):
            try:
                self._run(step)
            except (AssertionError, ValueError, LookupError) as reason:
                raise ScenarioError(f"line {step.number}: {step.text}\n  {reason}") from reason

    def _run(self, step: Step) -> None:
        if step.verb == "uncommitted":
            self._act(step.words[0], Words(step.words[1:]), step)
            self.world.engine.drain_records()
            self.world.recover()
        else:
            self._answer(step)
            self.world.commit()
        self._check()

    def _act(self, verb: str, words: Words, step: Step) -> str:
        if verb == "define":
            answer = acts.define(self.world, words, step.block)
        else:
            answer = {**acts.VERBS, **looks.VERBS}[verb](self.world, words)
        words.end()
        return answer

    def _answer(self, step: Step) -> None:
        before = digest(self.world.state)
        try:
            answer = self._act(step.verb, Words(step.words), step)
        except SparkQueueError as refusal:
            code, _, text = (step.expected or "").partition(" ")
            if refusal.code != code or text not in str(refusal):
                raise AssertionError(f"was refused: {refusal}") from refusal
            compare(digest(self.world.state), before, "was refused, and changed something")
            return
        if step.expected is not None:
            compare(answer, step.expected, f"answered {answer!r}")

    def _check(self) -> None:
        broken = [*of_state(self.world.state), *of_records(self.world.committed)]
        live, folded = digest(self.world.state), digest(self.world.folded())
        broken += [f"folding the log anew gives other {name}" for name in live if live[name] != folded[name]]
        restored = digest(self.world.restored())
        broken += [f"going through a snapshot gives other {name}" for name in live if live[name] != restored[name]]
        compare(broken, [], "; ".join(broken))
        # Only what changed is asked again when something is due.
        compare(self.world.engine.next_due_ms(), due_by_all(self.world.engine), "something is due at another time")


def run_scenario(text: str) -> Scenario:
    """Run a whole scenario, and give it for further looks.

    Raises
    ------
    ScenarioError
        At the first line that does not hold.
    """
    scenario = Scenario()
    scenario.run(text)
    return scenario
