"""The commands that the documentation shows, and what they stand for in a test."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
)
# What a command may start with: settings for the shell, and one of these programs.
START = re.compile(r"(?P<settings>([A-Z_]+=\S+ )*)(ablate|make|ray)( |$)")
# Words that stand for something of the reader, and what they are in a test.
PLACEHOLDERS = {
    "STUDY": "mine",
    "FILE": "mine.yaml",
    "SPACE.yaml": "mine.yaml",
    "R": "1",
    "NAME": "top1",
    "SELECT ...": "SELECT 1",
    "VERB": "plan",
    "NEW": "other",
}
# Parts of commands that need a real Ray, and what else it takes to run them.
NEED_RAY = {
    "--ray-address": "a cluster",
    "s3://BUCKET": "an object store",
    "--gpus": "resources",
    "--log": "the services that log",
}
# A fenced block, an indented line of a block, or a span of code.
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)(?: file=(?P<file>\S+))?\n"
    r"(?P<text>.*?)^ *```$",
    re.M | re.S,
)
INDENTED = re.compile(r"^ {4,}(?P<text>\S.*)$", re.M)
SPAN = re.compile(r"`(?P<text>[^`]+)`")


@dataclass(frozen=True)
class Command:
    """A command line of one of our programs, or of Ray.

    Attributes:
        words: the command and its arguments, as the shell splits them, up to `>`.
        page: where it is shown.
        in_text: it is in a sentence, where it may be the name of a verb.
        settings: what stands before it, such as "WANDB_MODE=offline ".
    """

    words: tuple[str, ...]
    page: str
    in_text: bool
    settings: str = ""

    @property
    def text(self) -> str:
        return self.settings + shlex.join(self.words)

    @property
    def needs_ray(self) -> bool:
        """Whether made-up trials cannot stand for those on Ray."""
        if self.words[1:2] == ("export",):
            # It reads what is stored.
            return False
        return any(part in self.text for part in NEED_RAY)


@dataclass(frozen=True)
class Snippet:
    """A block of code that is no command.

    Attributes:
        page: where it is shown.
        language: its language, such as "yaml".
        file: the file that a reader writes it to; empty if the page names none.
        text: the code.
    """

    page: str
    language: str
    file: str
    text: str


def snippets(language: str = "") -> list[Snippet]:
    """The blocks of all pages, or those in one language."""
    found = []
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text()):
            if language not in ("", block["language"]):
                continue
            snippet = Snippet(
                page=page.relative_to(ROOT).as_posix(),
                language=block["language"],
                file=block["file"] or "",
                text=textwrap.dedent(block["text"]),
            )
            found.append(snippet)
    return found


def commands(program: str) -> dict[str, Command]:
    """The commands of all pages by their text; the first page that shows one counts."""
    found: dict[str, Command] = {}
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        for text, in_text in lines(page.read_text()):
            command = parse(text, name, in_text=in_text)
            if command is None or command.words[0] != program:
                continue
            known = found.get(command.text)
            if known is None or known.in_text:
                found[command.text] = command
    return found


def lines(page: str) -> Iterator[tuple[str, bool]]:
    """The lines of blocks, then the spans; with whether it is in a sentence."""
    for block in BLOCK.finditer(page):
        for line in block["text"].splitlines():
            yield line.strip().removeprefix("$ "), False
    without_blocks = BLOCK.sub("", page)
    for line in INDENTED.finditer(without_blocks):
        yield line["text"], False
    for span in SPAN.finditer(without_blocks):
        yield " ".join(span["text"].split()), True


def parse(text: str, page: str, *, in_text: bool) -> Command | None:
    """The command of a line; None if it is none of a shell."""
    start = START.match(text)
    if start is None:
        return None
    settings = start["settings"]
    words = shlex.split(text.removeprefix(settings), comments=True)
    if ">" in words:
        words = words[: words.index(">")]
    return Command(tuple(words), page, in_text, settings)
