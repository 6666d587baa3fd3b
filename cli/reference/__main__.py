"""``python -m cli.reference [FOLDER]``: write the reference pages, by default into ``docs/reference``."""

from __future__ import annotations

import sys
from pathlib import Path

from cli.reference.pages import pages


def main() -> None:
    """Write every page, and name it."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{folder / name}\n")


if __name__ == "__main__":
    main()
