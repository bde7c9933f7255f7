"""Lets another process be what this one was started to be, with all that it got from its starter."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

#: What a starter hands down beside the streams, the environment and the directory: signals that are ignored, and limits.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS)

#: The standard streams.
_STREAMS = (0, 1, 2)

#: Most descriptors that are handed over beside the streams.
_DESCRIPTORS_MOST = 1


def hand_over(address: str, *, is_watched: bool = False, descriptors: Sequence[int] = ()) -> None:
    """End this process when another has taken its place; where nobody does, return.

    Where the starter watches the process that it has started, this one stays for as long as the other lives: signals are handed on,
    and what kills this one kills the other.
    """
    told = {
        "arguments": sys.orig_argv[2:],
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
        "path": sys.path,
        "namespaces": _namespaces(),
        "ignored": [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        "limits": [resource.getrlimit(limit) for limit in _LIMITS],
        "is_watched": is_watched,
    }
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
            socket.send_fds(server, [b"\0"], [*_STREAMS, *descriptors])
            text = json.dumps(told).encode()
            server.sendall(len(text).to_bytes(4) + text)
            is_taken = server.recv(1)
        except OSError:
            return
        if is_taken and is_watched:
            for each in descriptors:
                # The other end hears when the process that has it ends.
                os.close(each)
            _stay(server)
    if is_taken:
        os._exit(0)


def _stay(other: socket.socket) -> None:
    """Hand signals on until the other process has ended."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            other.send(bytes([number]))

    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, hand_on)
    with contextlib.suppress(OSError):
        other.recv(1)


def _run_module(*_descriptors: int) -> None:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def serve(address: str, run: Callable[..., None] = _run_module) -> None:
    """Be forked for each process that hands over, until stdin ends.

    `run` is called with the descriptors that were handed over; by default it runs the other's module.
    """
    # Pages that the collector of cycles does not touch stay shared.
    gc.collect()
    gc.freeze()
    # Ctrl-C is for the tests, whose end is the end of stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    descriptors = _forked_with(address)
    if descriptors is not None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run(*descriptors)


def _forked_with(address: str) -> list[int] | None:
    """Fork for each who asks until stdin ends; return None then, and in a forked process the descriptors that it got."""
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(address)
        listening.listen(128)
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listening for key, _ in selector.select()):
            caller, _ = listening.accept()
            with caller:
                descriptors = _fork_for(caller)
                if descriptors is not None:
                    return descriptors
    return None


def _fork_for(caller: socket.socket) -> list[int] | None:
    """Fork a process that takes the place of one that asks; in it, return the descriptors that it got."""
    _, got, _, _ = socket.recv_fds(caller, 1, len(_STREAMS) + _DESCRIPTORS_MOST)
    streams, descriptors = got[: len(_STREAMS)], got[len(_STREAMS) :]
    told = _told_by(caller)
    # One on a host of its own, as tests make them, is not of this one.
    is_taken = told.get("namespaces") == _namespaces() and os.fork() == 0
    if is_taken:
        for stream, target in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, target)
        _take(told)
        if told["is_watched"]:
            _heed(caller.dup())
        else:
            os.setsid()
        caller.send(b"\0")
    for each in streams if is_taken else got:
        os.close(each)
    return descriptors if is_taken else None


def _told_by(caller: socket.socket) -> dict[str, Any]:
    with caller.makefile("rb") as stream:
        text = stream.read(int.from_bytes(stream.read(4)))
    try:
        return dict(json.loads(text))
    except json.JSONDecodeError:
        # It was killed before it had said all.
        return {}


def _take(told: dict[str, Any]) -> None:
    sys.argv[:] = told["arguments"]
    os.environ.clear()
    os.environ.update(told["environment"])
    time.tzset()
    os.chdir(told["directory"])
    sys.path[:] = [told["directory"], *told["path"]]
    for number in _SIGNALS:
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in told["ignored"] else default)
    for limit, values in zip(_LIMITS, told["limits"], strict=True):
        # Some systems refuse to set what they give.
        if resource.getrlimit(limit) != tuple(values):
            resource.setrlimit(limit, values)


def _heed(watched: socket.socket) -> None:
    """Do to this process what is done to the one in whose place it is."""

    def heed() -> None:
        with contextlib.suppress(OSError):
            for [number] in iter(lambda: watched.recv(1), b""):
                os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGKILL)

    # What this process forks is watched by nobody.
    os.register_at_fork(after_in_child=watched.close)
    threading.Thread(target=heed, daemon=True).start()


def _namespaces() -> list[str]:
    """Return what tells the host of a process from others on the same system, where the system has such."""
    return [str(link.readlink()) for link in sorted(Path("/proc/self/ns").glob("*"))]
