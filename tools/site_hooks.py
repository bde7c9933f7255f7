"""What `mkdocs build` does beyond its settings: README.md is the site's first page, and links that leave docs/ become text.

On a code host, and in an editor, such a link opens the file. The site does not carry the repository's files, so its readers are
told where the file lies.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(?:#[^)\s]*)?\)")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add README.md as the first page, whose links begin in the repository and not in docs/."""
    readme = Path(config.config_file_path).with_name("README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=readme.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Replace each link to a file outside of docs/ by its text and the file's path."""
    root = "" if page.file.src_uri == "index.md" else "docs"
    folder = posixpath.dirname(posixpath.join(root, page.file.src_uri))

    def told(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        if path.startswith("docs/") or files.get_file_from_path(path):
            return link[0]
        return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    return _LINK.sub(told, markdown)
