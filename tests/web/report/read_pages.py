"""Pages read as a browser would, without one."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Parts(HTMLParser):
    """What a page holds, as a browser's parser sees it."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag in ("script", "style"):
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.texts[self._open][-1] += data
        else:
            self.texts.setdefault("", []).append(data)

    @property
    def policy(self) -> dict[str, list[str]]:
        """The directives of the content security policy."""
        result = next(a["content"] for t, a in self.tags if t == "meta" and "http-equiv" in a)
        assert result is not None
        words = [part.split() for part in result.split(";")]
        return {word[0]: word[1:] for word in words}

    @property
    def data(self) -> Any:
        """The columns of the gallery."""
        return json.loads(self.texts["script"][0])


def parts_of(path: Path) -> Parts:
    """The parts of a page on disk."""
    return Parts(path.read_text(encoding="utf-8"))


def said(path: Path) -> str:
    """All words of a page, on one line."""
    return " ".join(" ".join(parts_of(path).texts[""]).split())
