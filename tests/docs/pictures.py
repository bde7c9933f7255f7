"""The pictures of the documentation: pages of the dashboard in a browser, and verbs in a terminal, over one journal with a past.

``python -m tests.docs.pictures`` (``make pictures``) draws them anew. Beside them stands the text that they show, without its
numbers, so that a test can tell when the product shows another.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tests.acceptance.served_page import Served, visitor
from tests.source_tree import ROOT
from tests.unit.dashboard.dashboard_world import busy_world
from tests.unit.dashboard.finding import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

#: Where they are kept, and the text that each shows, by its name.
PICTURES = ROOT / "docs" / "pictures"
SHOWN = PICTURES / "shown.json"

#: The pages by the names of their pictures.
PAGES = {
    "overview": "/",
    "queue": "/j/shop/queues/BILLING?span=6h",
    "dead-letters": "/j/shop/queues/BILLING/dead-letters",
    "message": "/j/shop/queues/BILLING/messages/{letter}",
}

#: The verbs by the names of their pictures.
VERBS = {"status": ("status", "shop"), "explain": ("explain", "shop", "BILLING", "{letter}")}

#: Width of the terminal, in characters.
COLUMNS = 160

#: Where its history begins: ages have two digits of seconds, however fast a machine draws, and columns one width.
_HOURS = 3 + 20 / 3600

#: The parts of a page that do not change with time: headings, terms, columns, buttons.
_OUTLINE = "h1, h2, th, dt, button"


def draw_pages(browser: Browser, served: Served, letter: int, folder: Path) -> dict[str, str]:
    """Keep a picture of each page in a folder, and return their outlines."""
    found = {}
    for name, path in PAGES.items():
        page = visitor(browser, served)
        page.goto(path.format(letter=letter))
        page.screenshot(path=folder / f"{name}.png", full_page=True)
        found[name] = plain(" ".join(page.locator(_OUTLINE).all_inner_texts()))
        page.context.close()
    return found


def draw_verbs(letter: int, folder: Path) -> dict[str, str]:
    """Keep a picture of the output of each verb in a folder, and return their texts."""
    found = {}
    for name, arguments in VERBS.items():
        words = [word.format(letter=letter) for word in arguments]
        output = in_terminal([sys.executable, "-m", "spark_queue.cli", *words])
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            console = Console(record=True, width=COLUMNS, file=nowhere)
            console.print(Text.assemble("$ ", (f"sparkq {' '.join(words)}", "bold")))
            console.print(Text.from_ansi(output))
        # A reader's own monospaced font: the pictures load nothing.
        form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace(
            "Fira Code, monospace", "monospace"
        )
        console.save_svg(str(folder / f"{name}.svg"), title="sparkq", code_format=form, unique_id=name)
        found[name] = plain(Text.from_ansi(output).plain)
    return found


def in_terminal(command: list[str]) -> str:
    """Return the output of a command in a terminal, with its colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT)}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, stdout=its, stderr=its, stdin=subprocess.DEVNULL, env=environment) as process:
        os.close(its)
        parts = []
        # A terminal whose other end is closed fails to be read.
        while part := _read(ours):
            parts.append(part)
    os.close(ours)
    assert process.returncode in (0, 3), b"".join(parts)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def plain(text: str) -> str:
    """Return a text without the numbers, names and gaps that another run changes."""
    without = re.sub(r"[0-9a-f]{32}|\d[\d,.:TZ+-]*|\b(ms|s|min|h|d)\b|[\u2500-\u257f]", "#", text)
    return re.sub(r"#[\s#]*", "# ", re.sub(r"\s+", " ", without)).strip()


def draw(browser: Browser, folder: Path) -> dict[str, str]:
    """Draw all pictures into a folder, and return the text that each shows."""
    # The pictures name the journal as somebody would who is in its directory.
    with tempfile.TemporaryDirectory() as place, chdir(place):
        world = busy_world(Path(), hours=_HOURS)
        letter = min(row for each in world.engine.state.ledger("BILLING").dead_letters for row in each.rows)
        served = Served(world, minute=180, is_alone=True)
        try:
            return draw_pages(browser, served, letter, folder) | draw_verbs(letter, folder)
        finally:
            served.end()


def main() -> None:
    """Draw the pictures of the documentation anew."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        shown = draw(browser, PICTURES)
        browser.close()
    SHOWN.write_text(json.dumps(shown, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
