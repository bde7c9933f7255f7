"""Runs scenarios, and checks after every step what must always hold."""

from __future__ import annotations

from typing import Any

from spark_queue.errors import CATALOGUE, SparkQueueError
from spark_queue.verification.of_state import of_state
from spark_queue.verification.state_digest import digest
from tests.deciding import due_by_all
from tests.scenario import acts, instance_steps, looks
from tests.scenario.instances import Instance
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
        What it acts on where there is one journal, for what the language cannot say.
    instances : dict of str to Instance
        What it acts on where there are several.
    """

    def __init__(self) -> None:
        self.world = World()
        self.instances: dict[str, Instance] = {}
        #: The newest block of definitions, which may be said again.
        self._block = ""
        #: How many records of each journal were sound, and with which state.
        self._checked: dict[str, tuple[int, dict[str, Any]]] = {}

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
        if step.verb == "instances":
            self.instances, self._checked = instance_steps.begin(Words(step.words), self.world.clock), {}
            return
        if "define" in (step.verb, *step.words[:1]) and "again" not in step.words:
            self._block = step.block
        if self.instances and not step.places and step.verb in instance_steps.TOGETHER:
            self._run_together(step)
            return
        for instance in self._places(step):
            self._run_at(step, instance)

    def _run_together(self, step: Step) -> None:
        words = Words(step.words)
        answer = instance_steps.TOGETHER[step.verb](self.instances, words)
        words.end()
        compare(step.expected or answer, answer, f"answered {answer!r}")
        for instance in self.instances.values():
            self._check(instance.world)

    def _places(self, step: Step) -> list[Instance | None]:
        """Return the instances at which a step is taken; None is the only journal."""
        if not self.instances and not step.places:
            return [None]
        if not step.places and step.verb != "define":
            raise ValueError(f"at which of {', '.join(self.instances)}?")
        return [self.instances[name] for name in step.places or self.instances]

    def _run_at(self, step: Step, instance: Instance | None) -> None:
        world = self.world if instance is None else instance.world
        if step.verb == "uncommitted":
            self._act(step.words[0], Words(step.words[1:]), instance)
            world.engine.drain_records()
            self._act("crash", Words(()), instance)
        else:
            self._answer(step, world, instance)
            world.commit()
        self._check(world)

    def _act(self, verb: str, words: Words, instance: Instance | None) -> str:
        world = self.world if instance is None else instance.world
        if verb == "define":
            words.flag("again")
            known = self._block
            answer = acts.define(world, words, known) if instance is None else instance_steps.define(instance, words, known)
        elif instance is not None and verb in instance_steps.VERBS:
            answer = instance_steps.VERBS[verb](self.instances, instance, words)
        else:
            answer = {**acts.VERBS, **looks.VERBS}[verb](world, words)
        words.end()
        return answer

    def _answer(self, step: Step, world: World, instance: Instance | None) -> None:
        code, _, text = (step.expected or "").partition(" ")
        # Only a refusal that is expected is compared with what was before: another one fails as it is.
        before = digest(world.state) if code in CATALOGUE else {}
        try:
            answer = self._act(step.verb, Words(step.words), instance)
        except SparkQueueError as refusal:
            if refusal.code != code or text not in str(refusal):
                raise AssertionError(f"was refused: {refusal}") from refusal
            compare(digest(world.state), before, "was refused, and changed something")
            return
        if step.expected is not None:
            compare(answer, step.expected, f"answered {answer!r}")

    def _check(self, world: World) -> None:
        # Only what changed is asked again when something is due.
        compare(world.engine.next_due_ms(), due_by_all(world.engine), "something is due at another time")
        live = digest(world.state)
        if self._checked.get(world.journal_id) == (len(world.committed), live):
            # What is read of the same log and the same state was found sound.
            return
        broken = [*of_state(world.state), *of_records(world.committed)]
        folded, restored = digest(world.folded()), digest(world.restored())
        broken += [f"folding the log anew gives other {name}" for name in live if live[name] != folded[name]]
        broken += [f"going through a snapshot gives other {name}" for name in live if live[name] != restored[name]]
        compare(broken, [], "; ".join(broken))
        self._checked[world.journal_id] = len(world.committed), live


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
