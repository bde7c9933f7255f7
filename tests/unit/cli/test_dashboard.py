"""`sparkq dashboard`: what it refuses, and what it serves."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from spark_queue import Journal
from tests.unit.cli.sparkq import Terminal


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "jinja2", "multipart"])
def test_a_missing_extra_is_told_with_what_to_install(
    sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *given: None if name == package else real(name, *given))
    answer = sparkq("dashboard", journal.path)
    assert answer.code == 1
    assert f"[EXTRA_MISSING] The dashboard needs package {package}, which is not installed." in answer.err
    assert "pip install 'spark-queue[dashboard]'" in answer.err


def test_another_host_is_refused_without_tls_and_token(sparkq: Terminal, journal: Journal) -> None:
    answer = sparkq("dashboard", journal.path, "--host", "0.0.0.0")
    assert answer.code == 1
    assert "[ADDRESS_UNSAFE] Serving on 0.0.0.0 would expose the queue beyond this host" in answer.err
    assert "no --tls-cert, no --tls-key, no --token-file." in answer.err


def test_a_port_in_use_is_told(sparkq: Terminal, journal: Journal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = sparkq("dashboard", journal.path, "--port", taken.getsockname()[1])
    assert answer.code == 1
    assert "can be listened on (Address already in use" in answer.err


@pytest.mark.parametrize("names_token", [False, True])
def test_it_says_where_to_look_and_keeps_a_chosen_token_to_itself(
    sparkq: Terminal, journal: Journal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, names_token: bool
) -> None:
    served: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: served.append((server.config, sockets[0].close())))
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    given = ["--token-file", token] if names_token else []
    answer = sparkq("dashboard", journal.path, "--port", 0, "--json", *given)
    assert answer.code == 0
    assert ("/login?token=" in answer.json["address"]) is not names_token
    assert "0123456789abcdef" not in answer.out
    assert answer.json["address"].startswith("http://127.0.0.1:")
    [(config, _)] = served
    assert (config.access_log, config.server_header, config.proxy_headers) == (False, False, False)


def test_several_journals_have_no_coordinator_in_common(sparkq: Terminal, journal: Journal) -> None:
    answer = sparkq("dashboard", journal.path, journal.path, "--coordinator", "a:1")
    assert answer.code == 1
    assert "[BAD_VALUE] '--coordinator'" in answer.err
