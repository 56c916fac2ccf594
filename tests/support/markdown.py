"""What is in a page of Markdown: its headings, links, code, and the command lines in it."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PROGRAM: Final = "gpu-webhooks"
_FENCE: Final = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"``(.+?)``|`([^`\n]+)`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_TOLD_ABOVE: Final = re.compile(r"(?:^|[|;&(] *|\$ |run: )(?:\.venv/bin/)?gpu-webhooks +(?=[a-z-])(?!charts/)")
"""Where the program is called: first on its line, or after what a shell reads before a command."""


class Page:
    """A page, read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text()
        self.fenced = [match[2] for match in _FENCE.finditer(text)]
        self._prose = _FENCE.sub("", text)
        self.inline = [match[1] or match[2] for match in _INLINE.finditer(self._prose)]

    @property
    def headings(self) -> list[str]:
        """As they are written."""
        return _HEADING.findall(self._prose)

    @property
    def anchors(self) -> frozenset[str]:
        """What a link to a heading says after its #, as GitHub makes it."""
        return frozenset(anchor(heading) for heading in self.headings)

    @property
    def links(self) -> list[str]:
        """The targets of links, outside of code."""
        return _LINK.findall(_INLINE.sub("", self._prose))

    def commands(self) -> Iterator[list[str]]:
        """The words after ``gpu-webhooks``, wherever the program is called."""
        for code in (*self.fenced, *self.inline):
            for line in code.replace("\\\n", " ").splitlines():
                for match in _TOLD_ABOVE.finditer(line):
                    yield _words(line[match.end() :])


def _words(rest: str) -> list[str]:
    """Of one command, as far as a shell would read it as that."""
    lexer = shlex.shlex(rest, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = []
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                break
            words.append(word)
    except ValueError:  # A quote that is open: what comes after it is no flag.
        pass
    return words


def anchor(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
