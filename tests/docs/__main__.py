"""``python -m tests.docs`` (``make readme``) writes every generated part of README.md and docs/ anew."""

from __future__ import annotations

from tests.docs.generated import generated
from tests.docs.pages import pages
from tests.source_tree import ROOT


def main() -> None:
    """Write the pages whose generated parts have changed."""
    for page in pages():
        text = generated(page.text)
        if text != page.text:
            (ROOT / page.path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
