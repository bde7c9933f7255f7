"""Every rule of a queue is proven by tests that name it, and the list of them is up to date."""

from __future__ import annotations

from tests.rules import RULES, RULES_MD, document, proofs


def test_every_rule_has_a_test() -> None:
    proven = proofs()
    assert [f"R{rule}: {about}" for rule, about in RULES.items() if rule not in proven] == []


def test_tests_name_no_rule_that_does_not_exist() -> None:
    assert sorted(proofs().keys() - RULES.keys()) == []


def test_the_list_of_rules_is_up_to_date() -> None:
    assert RULES_MD.read_text(encoding="utf-8") == document(), "run `make rules`"
