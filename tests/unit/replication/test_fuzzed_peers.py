"""Random faults in the log of a peer: coded errors only, this instance is sound, and the honest log heals it (DESIGN 17.3)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_queue.core.records import Kind
from spark_queue.errors import SparkQueueError
from tests.unit.replication.sites import Attack, Home

#: How many journals are changed; `make nightly` asks for more.
FUZZED_PEERS = int(os.environ.get("FUZZED_PEERS", "25"))

#: What stands where something else should.
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**53, 2**60, 2**63 - 1, 2**64, 1.5, -0.0, "", ".", "..", "T", "WORK", "FAILED", "virginia",
    "frankfurt", "../../x", "x" * 100_000, "\u0000", "é\u202e", "{}", [], {}, [[]], [None], {"": None}, [[0, 2**60]],
    [[0, 1, "virginia", 0]], "acknowledged", "redriven", "max_deliveries", *Kind,
)  # fmt: skip

EDGES = (-(2**63), -1, 0, 1, 2, 3, 5, 9, 2**31, 2**32, 2**53, 2**60, 2**63 - 1)

#: Columns of text, which may be missing.
TEXTS = ("kind", "message_type", "queue", "reason")

#: Facts that a record may have, and most have not.
TRAITS = ("life", "term", "owner", "stage", "origin", "instances", "deliveries", "critical", "v", "source", "passed")


class Fuzzer:
    """Changes records as its seed says."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def change(self, row: dict[str, Any]) -> None:
        """Change one thing of a record, or some."""
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            match self.random.choice(["column", "ranges", "fact", "fact", "fact", "deep", "new", "byte"]):
                case "column":
                    name = self.random.choice(TEXTS)
                    text = self.random.choice([each for each in ODD if isinstance(each, str)])
                    row[name] = text if name == "kind" or self.random.random() < 0.8 else None
                case "ranges":
                    row["ranges"] = list(self._ranges())
                case "fact" if isinstance(row["detail"], dict) and row["detail"]:
                    row["detail"][self.random.choice([*row["detail"]])] = self.random.choice(ODD)
                case "deep" if isinstance(row["detail"], dict):
                    self._deep(row["detail"])
                case "new" if isinstance(row["detail"], dict):
                    row["detail"][self.random.choice(TRAITS)] = self.random.choice(ODD)
                case "byte":
                    text = row["detail"] if isinstance(row["detail"], str) else json.dumps(row["detail"])
                    at = self.random.randrange(len(text) or 1)
                    row["detail"] = text[:at] + self.random.choice('{}[]",:0-9eé\u0000') + text[at + 1 :]

    def _deep(self, found: Any) -> None:
        while isinstance(found, dict | list) and found:
            key: Any = self.random.choice([*found]) if isinstance(found, dict) else self.random.randrange(len(found))
            if not isinstance(found[key], dict | list) or not found[key]:
                found[key] = self.random.choice(ODD)
                return
            found = found[key]

    def _ranges(self) -> Iterator[dict[str, int]]:
        for _ in range(self.random.randint(0, 3)):
            yield {"first": self.random.choice(EDGES), "until": self.random.choice(EDGES)}


def test_random_faults_stop_a_peer_and_nothing_else(home: Home, tmp_path: Path) -> None:
    for seed in range(FUZZED_PEERS):
        try:
            (tmp_path / str(seed)).mkdir()
            _fuzz(Attack(home, tmp_path / str(seed)), Fuzzer(seed))
        except BaseException as failure:
            failure.add_note(f"This was seed {seed}.")
            raise


def _fuzz(attack: Attack, fuzzer: Fuzzer) -> None:
    count = len(attack.peer.rows())
    for number in fuzzer.random.sample(range(count), fuzzer.random.choice([1, 1, 2, 4])):
        attack.peer.rewrite(number, fuzzer.change)
    refusal = attack.here.pull("virginia", attack.peer.path)
    assert refusal is None or isinstance(refusal, SparkQueueError)
    # What is believed it may say: messages that it ends are ended.
    if refusal is None or fuzzer.random.random() < 0.3:
        attack.go_on()
