"""Runs the command line in this process, as a terminal would."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from spark_queue.cli.app import run


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a verb gave back."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """Where verbs are typed."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Answer:
        self.monkeypatch.setattr(sys, "argv", ["sparkq", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run()
        captured = self.capsys.readouterr()
        return Answer(code=int(ended.value.code or 0), out=captured.out, err=captured.err)
