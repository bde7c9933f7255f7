"""Lets another process be what this one was started to be, with all that it got from its starter."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

#: What a starter hands down beside the streams, the environment and the directory: signals that are ignored, and limits.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)

#: The standard streams.
_STREAMS = (0, 1, 2)


def hand_over(address: str) -> None:
    """End this process when another has taken its place; where nobody does, return."""
    told = {
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "path": sys.path,
        "namespaces": _namespaces(),
        "ignored": [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        "limits": [resource.getrlimit(limit) for limit in _LIMITS],
    }
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
            socket.send_fds(server, [b"\0"], _STREAMS)
            server.sendall(json.dumps(told).encode())
            server.shutdown(socket.SHUT_WR)
            is_taken = server.recv(1)
        except OSError:
            return
    if is_taken:
        os._exit(0)


def fork_for(caller: socket.socket) -> bool:
    """Fork a process that takes the place of one that asks, and return whether this is that process."""
    _, streams, _, _ = socket.recv_fds(caller, 1, len(_STREAMS))
    told = _told_by(caller)
    # One on a host of its own, as tests make them, is not of this one.
    is_taken = told.get("namespaces") == _namespaces() and os.fork() == 0
    if is_taken:
        os.setsid()
        for stream, target in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, target)
        _take(told)
        caller.send(b"\0")
    for stream in streams:
        os.close(stream)
    return is_taken


def _told_by(caller: socket.socket) -> dict[str, Any]:
    text = b"".join(iter(lambda: caller.recv(1 << 16), b""))
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError:
        # It was killed before it had said all.
        return {}


def _take(told: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(told["environment"])
    time.tzset()
    os.chdir(told["directory"])
    sys.path[:] = told["path"]
    for number in _SIGNALS:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in told["ignored"] else default)
    for limit, values in zip(_LIMITS, told["limits"], strict=True):
        # Some systems refuse to set what they give.
        if resource.getrlimit(limit) != tuple(values):
            resource.setrlimit(limit, values)


def _namespaces() -> list[str]:
    """Return what tells the host of a process from others on the same system, where the system has such."""
    return [str(link.readlink()) for link in sorted(Path("/proc/self/ns").glob("*"))]
