"""Draws the first minutes in a terminal as one animated picture, for README.

    make tutorials

The commands and what they print are those of the tutorial "First hour", which tests
run. The picture needs no script and no network. With reduced motion, it shows the last
screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from docs import make_tutorials

PAGE = "tutorials/first-hour.md"
PICTURE = "figures/first-minutes.svg"
# How many commands of the page are shown, from the first one on. One that the page runs
# again is shown once.
MOST_COMMANDS = 4
# Size of a letter and of the margin, in pixels.
WIDE, HIGH, MARGIN = 7.25, 17, 14
# Seconds until a command has printed, and seconds to read a line.
TYPED, READ = 1.2, 0.45

STYLE = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
text { fill: #d8d8d8; white-space: pre; }
.typed { fill: #7fc4f5; }
g { visibility: hidden; }
"""


@dataclass(frozen=True)
class Screen:
    """A command with what it prints, and for how many seconds it is shown."""

    command: str
    lines: tuple[str, ...]
    seconds: float


def screens(page: str) -> Iterator[Screen]:
    """Each command of a page, alone at first and then with what it prints."""
    command = ""
    seen: set[str] = set()
    for block in make_tutorials.blocks(page):
        if block.kind == "console":
            command = block.text.strip().removeprefix("$ ")
        if block.kind != "text" or "\n" in command or command in seen:
            continue
        seen.add(command)
        lines = tuple(block.text.splitlines())
        yield Screen(command, (), TYPED)
        yield Screen(command, lines, 1 + READ * len(lines))
        if len(seen) == MOST_COMMANDS:
            return


def picture(page: str) -> str:
    """The recording of a page as SVG."""
    shown = list(screens(page))
    rows = 1 + max(len(screen.lines) for screen in shown)
    columns = max(len(line) for screen in shown for line in screen.lines)
    width = round(columns * WIDE) + 2 * MARGIN
    height = rows * HIGH + 2 * MARGIN
    whole = sum(screen.seconds for screen in shown)
    style = [STYLE.strip()]
    drawn = []
    begin = 0.0
    for number, screen in enumerate(shown):
        end = begin + screen.seconds
        style.append(_visible(number, begin / whole, end / whole, whole))
        drawn.append(_screen(number, screen))
        begin = end
    last = len(shown) - 1
    style.append(
        "@media (prefers-reduced-motion: reduce) { g { animation: none !important; }"
        f" #s{last} {{ visibility: visible; }} }}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" role="img">',
            "<title>The first minutes with ablate in a terminal</title>",
            "<style>",
            *style,
            "</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1b1b1b"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _visible(number: int, begin: float, end: float, whole: float) -> str:
    """The animation that shows one screen for its part of the whole time."""
    shown = "visibility: visible"
    hidden = "visibility: hidden"
    return (
        f"#s{number} {{ animation: k{number} {whole:.1f}s step-end infinite; }}"
        f" @keyframes k{number} {{ 0% {{ {shown if begin == 0 else hidden} }}"
        f" {100 * begin:.2f}% {{ {shown} }} {100 * end:.2f}% {{ {hidden} }} }}"
    )


def _screen(number: int, screen: Screen) -> str:
    lines = [f'<tspan class="typed">$ {escape(screen.command)}</tspan>']
    lines += map(escape, screen.lines)
    texts = (
        f'<text x="{MARGIN}" y="{MARGIN + HIGH * place - 4}">{line}</text>'
        for place, line in enumerate(lines, 1)
    )
    return "\n".join([f'<g id="s{number}">', *texts, "</g>"])


def main() -> None:
    """Draws the recording of the tutorial as it is now."""
    folder = make_tutorials.DOCS
    text = (folder / PAGE).read_text(encoding="utf-8")
    Path(folder / PICTURE).write_text(picture(text), encoding="utf-8")


if __name__ == "__main__":
    main()
