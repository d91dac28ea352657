"""Runs the commands of tutorials and writes their output into the pages.

    make tutorials

A page is run in an empty folder, from top to bottom. A block of YAML with `file=NAME` is
written to that file. The commands of a console block run one after the other, and their
output replaces the block of text that follows. A test runs the same commands.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import termios
import textwrap
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent
# Width of the terminal.
COLUMNS = 110
PAGES = (
    "tutorials/first-hour.md",
    "tutorials/reviewer.md",
    "tutorials/larger.md",
)
# Figures that a page shows, by what its commands write.
FIGURES = {"effects.svg": "figures/first-effects.svg"}
# What a terminal does not show, such as a change of colour.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BLOCK = re.compile(
    r"^```(?P<kind>\w+)(?: file=(?P<file>\S+))?\n(?P<text>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    Attributes:
        kind: its language, such as "yaml".
        file: the file that it is written to; empty if it is only read.
        start: where its text begins in the page.
        end: where its text ends.
    """

    kind: str
    file: str
    text: str
    start: int
    end: int


def blocks(page: str) -> Iterator[Block]:
    """The blocks of code in a page."""
    for found in BLOCK.finditer(page):
        yield Block(
            kind=found["kind"],
            file=found["file"] or "",
            text=found["text"],
            start=found.start("text"),
            end=found.end("text"),
        )


def output(command: str, folder: Path) -> str:
    """Runs a command and returns what it prints to a terminal.

    If it prints nothing to stdout, this is what it prints to stderr.

    Raises:
        SystemExit: the command fails.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (50, COLUMNS))
    started = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(its)
    with ThreadPoolExecutor() as pool:
        printed = pool.submit(read_all, ours)
        _, messages = started.communicate()
        lines = CONTROL.sub("", printed.result() or messages).splitlines()
    os.close(ours)
    # `review` ends with 1 if it has an objection.
    expected = (0, 1) if command.startswith("ablate review") else (0,)
    if started.returncode not in expected:
        raise SystemExit(f"{command} ends with {started.returncode}:\n{messages}")
    # A terminal breaks long lines too, but inside words.
    broken = (textwrap.fill(line.rstrip(), COLUMNS) for line in lines if line.strip())
    return "".join(f"{line}\n" for line in broken)


def read_all(terminal: int) -> str:
    """What is printed to a terminal until all programs have closed it."""
    parts = []
    # At the end, Linux reports an error instead of an empty read.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    return b"".join(parts).decode()


def run(page: str, folder: Path, epochs: int | None = None) -> str:
    """Runs a page in a folder. Returns it with the output of its commands.

    Args:
        epochs: those of each trial; None: as many as the page says.
    """
    parts = []
    printed = ""
    written = 0
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text)
        if block.kind == "console":
            commands = [line.removeprefix("$ ") for line in block.text.splitlines()]
            printed = ""
            for command in commands:
                if epochs is not None:
                    set_epochs(folder, epochs)
                printed += output(command, folder)
        if block.kind == "text":
            parts += [page[written : block.start], printed]
            written = block.end
    return "".join([*parts, page[written:]])


def set_epochs(folder: Path, epochs: int) -> None:
    """Writes another number of epochs into the spaces of a folder."""
    for space in folder.glob("*.yaml"):
        text = re.sub(r"\bepochs: \d+", f"epochs: {epochs}", space.read_text())
        space.write_text(re.sub(r"warmup_epochs: [1-9]\d*", "warmup_epochs: 1", text))


def main(names: Sequence[str]) -> None:
    """Runs these pages, and then writes all of them.

    A changed checkout is a finding of `ablate review`, which a page would show.
    """
    with tempfile.TemporaryDirectory() as parent:
        ran = {}
        for number, name in enumerate(names):
            folder = Path(parent, str(number))
            folder.mkdir()
            ran[name] = run((DOCS / name).read_text(), folder)
            for made in FIGURES:
                if (folder / made).exists():
                    shutil.copy(folder / made, Path(parent, made))
        for name, page in ran.items():
            (DOCS / name).write_text(page)
        for made, shown in FIGURES.items():
            if Path(parent, made).exists():
                shutil.copy(Path(parent, made), DOCS / shown)


if __name__ == "__main__":
    main(sys.argv[1:] or PAGES)
