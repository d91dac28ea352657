"""Text that would act if an output did not escape it, for every format that the tool
writes.
"""

from __future__ import annotations

import re

HTML = (
    "<script>alert(1)</script><img src=http://evil.invalid/h.png"
    " onerror=alert(2)></td></table><b>&lt;&amp;' \""
)
MARKDOWN = (
    "![i](http://evil.invalid/m.png) [l](http://evil.invalid/l) <http://evil.invalid/a>"
    " https://evil.invalid/u `c` **b** _e_ ~~s~~ x|y \\| \\\\ $m$ :smile: :red[r] -> --"
    " &copy; \\"
)
BLOCKS = (
    "\n# heading\n- item\n1. one\n> quoted\n| a | b |\n|---|---|\n===\n```\ncode\n[r]:"
    " http://evil.invalid/r\n"
)
TEX = (
    r"\input{/etc/hostname} \write18{id} \end{tabular} ^^5cinput ^^M $x_1$ %c #1 & ~ {"
    r" } \\[2cm] "
    "-- --- `` '' ?` << >> ,, é ß 漢 😀 ≤"
    "\n\\input{/etc/hostname}\n%\n"
)
CONTROL = (
    "\x1b]0;title\x07\x1b[2J\x1b[31m\x08\x08\r\x0b\x0c\x7f\x00\x9b31m\x85"
    "\u2028\u202eright\u202c\u2066\u200b\ufeff\U000e0041"
)
SQL = "'; DROP TABLE trials; --"
SHELL = '; touch "$HOME/pwned" `id` $(id) #'

KINDS = {
    "html": HTML,
    "markdown": MARKDOWN,
    "blocks": BLOCKS,
    "tex": TEX,
    "control": CONTROL,
    "sql": SQL,
    "shell": SHELL,
}
FORMULAS = [
    "=1+1",
    '=HYPERLINK("http://evil.invalid","x")',
    "+1+1",
    "-1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
]
FORMULAS += ["'=1", "''=1", "'", "\uff1d1+1", "'\r", "-", "+"]
HARMLESS = [
    "How many shortcuts, 50% | or_more?",
    "80.70 ± 0.14 (+1.00)",
    "shortcuts.b = 5 does not divide the width 384",
    "* p < 0.05 (adjusted for 2 comparisons; variance estimate shared among rows). FLOPs:"
    " executed multiply-adds.",
    "C:\\data\\new",
    "patch_size & width",
    "-0.65",
]

# What no output may hold, whatever it is: written here again, so that a hole in
# `ablate.text.escape` is seen.
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)


def evil(place: str) -> str:
    """All of it, in one text that says where it was put and begins like a formula."""
    return f"={place} " + " ".join(KINDS.values()) + f" end of {place}"


# The escapes of `escape.visible`, and the cells that `escape.csv` has marked.
SHOWN = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
IS_MARKED = re.compile("''*(?:[=+\\-@\t\n\uff1d\uff0b\uff0d\uff20]|\\\\x0d)")


def restore(text: str) -> str:
    """Returns the text that `escape.visible` received."""
    return SHOWN.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


def csv_text(cell: str) -> str:
    """Returns the text of a cell that `escape.csv` wrote."""
    return restore(cell[1:] if IS_MARKED.match(cell) else cell)
