"""Documents as text, and the structure of YAML: encodings, what is unclosed, sizes,
depths, keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tests.attack.case import PLAN, SPACE, Case, document

GOOD = """question: Does it help?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors:
  shortcuts.count: [0, 1]
  layout: [serial, parallel]
seeds: 2
data: digits
recipe: {epochs: 2, warmup_epochs: 0}
"""
MEGABYTE = 1_000_000


def changed(old: str, new: str) -> str:
    """The good document with a part replaced."""
    assert old in GOOD
    return GOOD.replace(old, new)


def added(text: str) -> str:
    """The good document with lines at its end."""
    return f"{GOOD}{text}\n"


def raw(name: str, content: bytes, says: str) -> Case:
    """A case of one file of bytes."""
    return Case(name=name, says=says, argv=PLAN, files={SPACE: content})


def hollow(path: Path) -> None:
    """A file of a gigabyte that takes no room."""
    with path.open("wb") as stream:
        stream.truncate(1000 * MEGABYTE)


def texts() -> Iterator[Case]:
    """What is no text, or text of something else."""
    yield raw("only blanks", b" \n\n   \n", "the document is empty")
    yield raw("only a byte order mark", b"\xef\xbb\xbf", "the document is empty")
    yield raw("only dashes", b"---\n", "the document is empty")
    yield raw("only an end", b"...\n", f"{SPACE}:1: ")
    yield raw("a directive and nothing", b"%YAML 1.2\n", f"{SPACE}:")
    yield raw("YAML 9", b"%YAML 9.0\n---\nquestion: x\n", f"{SPACE}:1: ")
    yield raw(
        "a directive twice", b"%YAML 1.1\n%YAML 1.1\n---\nquestion: x\n", f"{SPACE}:2: "
    )
    yield raw(
        "a tag directive",
        b"%TAG ! tag:yaml.org,2002:python/\n---\nquestion: !name:os x\n",
        "is not allowed",
    )
    yield raw("UTF-16", GOOD.encode("utf-16"), "it is not UTF-8 text")
    yield raw("UTF-16 without a mark", GOOD.encode("utf-16-be"), "not valid YAML")
    yield raw("UTF-32", GOOD.encode("utf-32"), "it is not UTF-8 text")
    yield raw("Latin-1", b"question: \xe4\n", "it is not UTF-8 text")
    yield raw(
        "cut within a character",
        GOOD.encode() + "expect: \N{PARTY POPPER}".encode()[:-1],
        "it is not UTF-8 text",
    )
    yield raw("overlong UTF-8", b"question: \xc0\x80\n", "it is not UTF-8 text")
    yield raw(
        "a surrogate in UTF-8", b"question: \xed\xa0\x80\n", "it is not UTF-8 text"
    )
    yield raw("a NUL byte", b"question: a\0b\n", "not valid YAML")
    yield raw("only NUL bytes", bytes(5000), "not valid YAML")
    yield raw("PNG", b"\x89PNG\r\n\x1a\n" + bytes(100), "it is not UTF-8 text")
    yield raw("ELF", b"\x7fELF\x02\x01\x01" + bytes(57), "not valid YAML")
    yield raw(
        "zip",
        b"PK\x03\x04\x14\0\0\0\x08\0" + bytes(range(128, 200)),
        "it is not UTF-8 text",
    )
    yield raw("gzip", b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "it is not UTF-8 text")
    yield raw("SQLite", b"SQLite format 3\0" + bytes(84), "not valid YAML")
    yield raw("JSON list", b'[{"question": "x"}]', "a space is a mapping")
    yield raw("JSON text", b'"question"', "a space is a mapping")
    yield raw("JSON number", b"17", "a space is a mapping")
    yield raw(
        "JSON cut",
        b'{"question": "x", "factors": {"layout": ["serial"',
        "not valid YAML",
    )
    yield raw("TOML", b"[space]\nquestion = 'x'\n", "not valid YAML")
    yield raw("INI", b"question = x\nseeds = 3\n", "a space is a mapping")
    yield raw(
        "HTML",
        b"<!DOCTYPE html><html><body>404: Not found</body></html>\n",
        f"{SPACE}:1: ",
    )
    yield raw(
        "a diff",
        b"--- a/space.yaml\n+++ b/space.yaml\n@@ -1 +1 @@\n-seeds: 2\n+seeds: 3\n",
        f"{SPACE}:",
    )
    yield raw(
        "conflict marks",
        b"<<<<<<< ours\nseeds: 2\n=======\nseeds: 3\n>>>>>>> theirs\n",
        f"{SPACE}:",
    )
    yield raw(
        "old Mac line ends",
        GOOD.replace("\n", "\r").replace("[0, 1]", "[0, -1]").encode(),
        f"{SPACE}:4: ",
    )
    yield raw(
        "Windows line ends",
        GOOD.replace("\n", "\r\n").replace("[0, 1]", "[0, -1]").encode(),
        f"{SPACE}:4: ",
    )
    yield raw(
        "a mark and a mistake",
        b"\xef\xbb\xbf" + changed("[0, 1]", "[0, -1]").encode(),
        f"{SPACE}:4: ",
    )
    for name, character in {
        "escape": "\x1b",
        "delete": "\x7f",
        "C1": "\x80",
        "not a character": "\ufffe",
    }.items():
        yield document(
            changed("help", f"he{character}lp"),
            f"control character: {name}",
            "not valid YAML",
        )
    for code in (r"\0", r"\x00", r"\u0000", r"\U00000000"):
        yield document(
            changed("Does it help?", f'"a{code}b"'),
            f"escaped NUL: {code}",
            f"{SPACE}:1: ",
        )
    for code in (
        r"\ud800",
        r"\udfff",
        r"\U0000d800",
        r"\U00110000",
        r"\Uffffffff",
        r"\q",
        r"\x4z",
        r"\u12",
    ):
        yield document(
            changed("Does it help?", f'"a{code}b"'), f"escape {code}", f"{SPACE}:1: "
        )


def unclosed() -> Iterator[Case]:
    """What begins and does not end, or ends and did not begin."""
    for name, value in {
        "bracket": "[0, 1",
        "brace": "{0: 1",
        "double quote": '"x',
        "single quote": "'x",
        "closing bracket": "[0, 1]]",
        "closing brace": "{a: 1}}",
        "the other bracket": "[0, 1}",
        "comma": "[,]",
        "two commas": "[0,, 1]",
        "a percent sign": "%x",
        "an at sign": "@x",
        "a backtick": "`x",
        "an anchor alone": "&",
        "an alias alone": "*",
        "an alias with a value": "*x y",
        "two anchors": "&a &b x",
        "two tags": "!!str !!str x",
        "a tag that is cut": "!<tag:yaml.org,2002:str x",
        "a tag of an unknown handle": "!e!x y",
        "an anchor on an alias": "&a *b",
        "text after a quote": '"x" y',
        "a colon in text": "a: b",
        "a block head of two digits": "|99\n  x",
        "a block head of nothing": "|0\n  x",
        "a dash in a line": "- x",
    }.items():
        yield document(
            changed("seeds: 2", f"seeds: {value}"), f"seeds with {name}", f"{SPACE}:"
        )
    yield document(changed("  layout:", " layout:"), "half a step back", f"{SPACE}:5: ")
    yield document(added("---\nquestion: x"), "two documents", f"{SPACE}:9: ")
    yield document(added("...\nquestion: x"), "something after the end", f"{SPACE}:")
    yield document(added("no colon here"), "a line without a colon", f"{SPACE}:")
    yield document(added(": no key"), "a line without a key", f"{SPACE}:9: ")


def keys() -> Iterator[Case]:
    """Keys that are none."""
    for name, key in {
        "a number": "5",
        "a float": "1.5",
        "null": "~",
        "truth": "true",
        "a list": "[a, b]",
        "a mapping": "{a: b}",
        "a long list": "[" + "a, " * 5000 + "b]",
        "a merge": "<<",
        "an equals sign": "=",
        "empty": '""',
        "blanks": '"  "',
        "emoji": "\N{PARTY POPPER}",
        "NUL": r'"a\0b"',
        "300 characters": "k" * 300,
        "a line break": r'"a\nb"',
        "a python object": "!!python/name:os.system x",
        "binary": "!!binary aGk=",
        "an unknown alias": "*nowhere",
        "a dotted path": "recipe.epochs",
        "of another case": "Seeds",
        "__class__": "__class__",
        "model_config": "model_config",
        "$ref": "$ref",
    }.items():
        yield document(added(f"? {key}\n: x"), f"key: {name}", f"{SPACE}:9: ")
    yield document(
        added("? " + "k" * 100_000 + "\n: x"),
        "a key of 100,000 characters",
        f"{SPACE}:9: ",
    )
    yield document(
        added('"\\x73eeds": 3'),
        "a key twice, escaped",
        f"{SPACE}:9: the key 'seeds' is a duplicate",
    )
    yield document("a: &a {b: 1}\n<<: *a\n" + GOOD, "a merge of a mapping", f"{SPACE}:")
    yield document(
        "\n".join(f"key{number}: 1" for number in range(5000)),
        "5,000 unknown keys",
        "more problems",
    )
    yield document(
        changed(
            "[serial, parallel]",
            "[serial, parallel]\n"
            + "\n".join(f"  f{number}: [0, 1]" for number in range(6000)),
        ),
        "6,000 unknown factors",
        "more problems",
    )


def sizes() -> Iterator[Case]:
    """What is too large, too deep, or refers to itself."""
    yield document(
        added("#" * MEGABYTE), "a comment of a megabyte", "larger than 1,000,000 bytes"
    )
    yield document(
        changed("Does it help?", "x" * (MEGABYTE + 1)),
        "a question of a megabyte",
        "larger than 1,000,000 bytes",
    )
    yield document(
        added("expect: " + "\N{PARTY POPPER}" * 300_000),
        "a megabyte in wide characters",
        "larger than 1,000,000 bytes",
    )
    yield document(
        changed("[0, 1]", "[" + "1, " * 290_000 + "1]"), "880 kB of levels", "too large"
    )
    yield document(
        changed("[0, 1]", "[" + "[], " * 220_000 + "1]"),
        "880 kB of empty lists",
        "too large",
    )
    yield document(
        changed("[0, 1]", '["' + "\\n" * 440_000 + '"]'),
        "880 kB of escapes",
        f"{SPACE}:4: ",
    )
    yield document(
        changed("[0, 1]", "[" + "x" * 880_000 + "]"),
        "880 kB of one word",
        f"{SPACE}:4: ",
    )
    yield document(
        changed("[0, 1]", "[" + "9" * 880_000 + "]"), "880 kB of digits", f"{SPACE}:4: "
    )
    yield document(
        changed("[0, 1]", "[0." + "9" * 880_000 + "e99999]"),
        "880 kB of a float",
        f"{SPACE}:4: ",
    )
    yield document(
        added("\n" * 880_000 + "seeds: 3"), "880 kB of empty lines", "is a duplicate"
    )
    yield document(
        added("".join(f"k{number}: 1\n" for number in range(80_000))),
        "880 kB of keys",
        "too large",
    )
    yield document(
        added("# x\n" * 220_000 + "seeds: 3"), "880 kB of comments", "is a duplicate"
    )
    yield document(
        "question: " + "[" * 400_000 + "]" * 400_000 + "\n",
        "400,000 brackets",
        "nested deeper than",
    )
    yield document(
        "question: " + "[" * 900_000, "900,000 open brackets", "nested deeper than"
    )
    yield document(
        "question: " + "{a: " * 200_000, "200,000 open braces", "nested deeper than"
    )
    yield document("- " * 400_000 + "x\n", "400,000 dashes", "nested deeper than")
    yield document(
        "? " * 400_000 + "x\n", "400,000 question marks", "nested deeper than"
    )
    yield document(
        "".join(" " * depth + "a:\n" for depth in range(1000)),
        "1,000 steps in",
        "nested deeper than",
    )
    yield document(
        "a: &a [x]\nb: &b [" + "*a, " * 19_000 + "*a]\nc: [" + "*b, " * 50 + "*b]\n",
        "a wide bomb",
        "too large",
    )
    names = [f"n{number}" for number in range(60)]
    bomb = "n0: &n0 [x, x]\n" + "".join(
        f"{n}: &{n} [*{p}, *{p}]\n" for p, n in itertools.pairwise(names)
    )
    yield document(bomb, "2 to the 60", "too large")
    bomb = "n0: &n0 {a: x, b: x}\n" + "".join(
        f"{n}: &{n} {{a: *{p}, b: *{p}}}\n" for p, n in itertools.pairwise(names)
    )
    yield document(bomb, "2 to the 60 in mappings", "too large")
    yield document("question: &a {b: *a}\n", "a mapping in itself", "refers to itself")
    yield document(
        "question: &a [[[*a]]]\n", "a list in a list in itself", "refers to itself"
    )
    yield document(
        "&a question: *a\nseeds: &s [*s, *s]\n",
        "an anchor on a key, and a list in itself",
        f"{SPACE}:",
    )
    yield document(added("expect: " + "&a " * 10), "ten anchors", f"{SPACE}:9: ")
    yield document(
        added("expect: &" + "a" * 100_000 + " [*" + "a" * 100_000 + "]"),
        "a long anchor",
        f"{SPACE}:9: ",
    )


CASES = [*texts(), *unclosed(), *keys(), *sizes()]
