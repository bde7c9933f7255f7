"""What older software says on the wire, and needs to hear: hosts are upgraded one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec

from spark_queue import error_texts
from spark_queue.protocol import wire

#: Of each type on the wire in version 0.1.0 its fields, and whether it cannot do without one.
FRAMES = Path(__file__).with_name("frames_of_0_1_0.json")

#: Of each error of that version the facts that its text names.
FACTS = Path(__file__).with_name("facts_of_0_1_0.json")


def forms() -> dict[str, dict[str, bool]]:
    """Return the fields of all that stands in frames, as they are called there."""
    found = dict[str, dict[str, bool]]()
    waiting: list[Any] = [msgspec.inspect.type_info(kind) for kind in (wire.AnyRequest, wire.AnyReply)]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType | msgspec.inspect.DataclassType) and kind.cls.__name__ not in found:
            found[kind.cls.__name__] = {field.encode_name: field.required for field in kind.fields}
            waiting += [field.type for field in kind.fields]
        parts = [getattr(kind, name, ()) for name in ("types", "item_types", "item_type", "key_type", "value_type")]
        waiting += [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
    return found


def differences(now: Mapping[str, Mapping[str, bool]]) -> list[str]:
    """Return what older software would not hear, or could not say."""
    told: dict[str, dict[str, bool]] = json.loads(FRAMES.read_text())
    gone = [f"{kind}.{name} is gone" for kind, names in told.items() for name in names.keys() - now.get(kind, {}).keys()]
    needed = {(kind, name) for kind, names in now.items() if kind in told for name, required in names.items() if required}
    return gone + [f"{kind}.{name} is needed" for kind, name in needed if not told[kind].get(name)]


def facts() -> dict[str, list[str]]:
    """Return the facts of each error, by its code: whoever hears of one says it in a text of its own."""
    kinds: list[dict[str, str]] = [error_texts.ACCESS, error_texts.CALLER, error_texts.CONFIG, error_texts.COORDINATOR]
    texts = {code: text for kind in (*kinds, error_texts.JOURNAL, error_texts.LEASE) for code, text in kind.items()}
    return {code: sorted({name for _, name, _, _ in Formatter().parse(text) if name}) for code, text in texts.items()}


def test_errors_have_the_facts_that_older_software_says() -> None:
    told: dict[str, list[str]] = json.loads(FACTS.read_text())
    now = facts()
    assert {code: names for code, names in told.items() if now.get(code) != names} == {}


def test_older_software_is_understood_and_understands() -> None:
    """A field that is renamed, or new and needed, ends every call between two versions."""
    assert differences(forms()) == []


def test_a_field_that_is_renamed_is_found() -> None:
    now = forms()
    now["QueueStatus"] = {"leased" if name == "backlog" else name: required for name, required in now["QueueStatus"].items()}
    assert sorted(differences(now)) == ["QueueStatus.backlog is gone", "QueueStatus.leased is needed"]
