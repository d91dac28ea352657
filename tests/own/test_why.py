"""Which changes train again, and what `ablate plan --why` says about them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.own import registry
from ablate.own.syntax import syntax_hash
from ablate.pipeline import Options
from ablate.scheduling import why as explaining
from ablate.store.reader import Reader
from tests.own.conftest import Run, Use

PARTS = '''
"""A trainer."""
import math
import ablate
import helping

RATE = 0.5

def noted(function):
    return function

@ablate.trainer(
    factors={"width": [2, 4]}, metrics={"loss": "min"}, recipe=["lr"],
)
def mine(trial):
    """Trains."""
    def step(x, by=1.0):
        return x * math.exp(-by * trial.recipe["lr"] * RATE)
    loss = helping.START * trial.levels["width"] + trial.seed
    for epoch in trial.epochs():
        loss = step(loss)
        trial.report(loss=loss)
'''
HELPING = "START = 3.0\n"
SPACE = """
question: q?
trainer: mine
factors: {width: [2, 4]}
recipe: {epochs: 2, lr: 0.5}
seeds: 2
"""
ALL = "rows 0, 1 (4 trials): "
CHANGED = ALL + "trainer mine: own_parts.py changed"


def edited(old: str, new: str) -> Callable[[Path], None]:
    """Changes the user's file."""

    def change(folder: Path) -> None:
        file = folder / "own_parts.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return change


def helping(text: str) -> Callable[[Path], None]:
    """Changes the module beside it."""
    return lambda folder: (folder / "helping.py").write_text(text) and None


def touched(folder: Path) -> None:
    (folder / "data.bin").write_bytes(b"\x00" * 10)
    (folder / "own_parts.py").touch()


def moved(folder: Path) -> None:
    text = (folder / "own_parts.py").read_text()
    (folder / "own_parts.py").write_text(text + "\n\n\n")


# What changes in the user's files, and what must then be said; nothing: no trial is new.
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a comment": (edited("RATE = 0.5", "RATE = 0.5  # per step"), ""),
    "a docstring": (edited('"""Trains."""', '"""Trains it."""'), ""),
    "no docstring": (edited('    """Trains."""\n', ""), ""),
    "the docstring of the file": (edited('"""A trainer."""', ""), ""),
    "a breakpoint": (
        edited("        loss =", "        breakpoint()\n        loss ="),
        "",
    ),
    "formatting": (edited("x, by=1.0", "x,  by = 1.0"), ""),
    "another spelling of a number": (edited("0.5", "5e-1"), ""),
    "quotes": (edited('"width": [2, 4]', "'width': [2, 4]"), ""),
    "empty lines": (moved, ""),
    "a file that is touched": (touched, ""),
    "a comment in a helper": (helping("# x\nSTART = 3.0\n"), ""),
    "a constant": (edited("0.5", "0.6"), CHANGED),
    "a default argument": (edited("by=1.0", "by=2.0"), CHANGED),
    "a decorator": (edited("    def step", "    @noted\n    def step"), CHANGED),
    "an import": (edited("import math", "import math, cmath"), CHANGED),
    "an annotation": (edited("x, by", "x: float, by"), CHANGED),
    "a statement": (
        edited("        loss =", "        print(1)\n        loss ="),
        CHANGED,
    ),
    "an operator": (edited("-by *", "by *"), CHANGED),
    "a helper": (
        helping("START = 2.0\n"),
        ALL + "trainer mine: helping.py changed",
    ),
    "a further module": (
        lambda folder: (
            (folder / "more.py").write_text("A = 1\n")
            and helping("import more\nSTART = 3.0\n")(folder)
        ),
        ALL + "trainer mine: helping.py changed; more.py new",
    ),
    "a level": (
        edited("[2, 4]", "[2, 4, 8]"),
        CHANGED,
    ),
}


def why(text: str, options: Options) -> list[str]:
    shown = pipeline.preview(space.load(text, "own.yaml"), options.url, options)
    return pipeline.why_new(shown, options.url)


@pytest.mark.parametrize("name", CHANGES)
def test_only_what_can_change_a_result_trains_again(
    name: str, use: Use, run: Run, options: Options, tmp_path: Path
) -> None:
    file = use(PARTS, helping=HELPING)
    assert run(SPACE).trained == 4
    change, told = CHANGES[name]
    change(tmp_path)
    registry.load_file(file)
    lines = why(SPACE, options)
    assert lines[:1] == ([told] if told else [])
    if told:
        assert "revision=1" in lines[-1]
    assert run(SPACE).trained == (4 if told else 0)
    assert why(SPACE, options) == []


SPACES = {
    "a recipe": ("lr: 0.5", "lr: 0.25", ALL + "recipe.lr is 0.25, and was 0.5"),
    "epochs": ("epochs: 2", "epochs: 3", ALL + "recipe.epochs is 3, and was 2"),
    "a seed": ("seeds: 2", "seeds: 3", "rows 0, 1 (2 trials): seed 2 is new"),
    "the order of levels": ("[2, 4]", "[4, 2]", ""),
    "a level": ("[2, 4]", "[2, 4, 8]", None),
    "a question": ("q?", "why?", ""),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_change_of_the_space(name: str, use: Use, run: Run, options: Options) -> None:
    parts = PARTS.replace('{"width": [2, 4]}', '{"width": ablate.Whole(1)}')
    use(parts, helping=HELPING)
    assert run(SPACE).trained == 4
    old, new, told = SPACES[name]
    lines = why(SPACE.replace(old, new), options)
    if told is None:
        told = "row 2 (2 trials): width is 8, and was 4"
        assert lines[0] in (told, told.replace("was 4", "was 2"))
    else:
        assert lines == ([told] if told else [])


def test_a_store_without_trials(use: Use, options: Options) -> None:
    use(PARTS, helping=HELPING)
    assert why(SPACE, options) == [
        "The store has no trained trial, so every trial is new."
    ]


def test_trials_of_before_keep_their_hashes(
    use: Use, run: Run, options: Options, tmp_path: Path
) -> None:
    """The identity is the hash of the text that the store has seen first."""
    file = use(PARTS, helping=HELPING)
    source = registry.load_file(file)
    assert registry._parts["trainer", "mine"].identity == source.hash
    assert run(SPACE).trained == 4
    edited("RATE = 0.5", "RATE = 0.5  # a comment")(tmp_path)
    changed = registry.load_file(file)
    assert changed.hash != source.hash
    assert run(SPACE).trained == 0
    assert registry._parts["trainer", "mine"].identity == source.hash
    with Reader(options.url) as reader:
        assert list(reader.identities.of_files().values()) == [source.hash]
    # In another store, the present text is the first one.
    other = tmp_path / "other.db"
    assert why(SPACE, Options(tmp_path / "other", str(other)))[0].startswith(
        "The store"
    )
    assert registry._parts["trainer", "mine"].identity == changed.hash


@pytest.mark.parametrize(
    "text",
    [
        "import argparse\nargparse.ArgumentParser(description=__doc__)\n",
        "exec(open(__file__).read())\n",
        "from pathlib import Path\nhere = Path(__file__)\nx = here.read_text()\n",
        "import inspect\n",
        "from inspect import getsource as g\n",
        "import sys\nx = getattr(sys, '__doc__')\n",
        "import operator\nx = operator.attrgetter('a.__doc__')\n",
        "x = '{0.__doc__}'.format(f)\n",
        "def f(): 'x'\nf.__code__.co_consts[0]\n",
        "import sys\nx = open(sys.argv[0], 'rb').read()\n",
        "import pkgutil\nx = pkgutil.get_data('h', 'h.py')\n",
        "import defopt\ndef main(*, lr): ':param int lr: x'\ndefopt.run(main)\n",
        "try:\n    f()\nexcept E as breakpoint:\n    breakpoint()\n",
        "match f:\n    case breakpoint:\n        breakpoint()\n",
        "import sys\nsys.breakpointhook = f\nbreakpoint()\n",
        "import builtins\nbuiltins.breakpoint = f\nbreakpoint()\n",
        "import torch\n@torch.jit.script\ndef f(x):\n    return x\n",
        "def breakpoint(): print(1)\nbreakpoint()\n",
        "from helpers import *\nbreakpoint()\n",
        "not python at all(\n",
    ],
)
def test_a_file_that_may_read_itself_counts_as_it_is(text: str) -> None:
    plain = syntax_hash({"": f'"""One."""\n{text}'})
    other = syntax_hash({"": f'"""Two."""\n{text}'})
    without = syntax_hash({"": text.replace("breakpoint()\n", "")})
    if "breakpoint" in text:
        assert without != syntax_hash({"": text})
    else:
        assert plain != other


@pytest.mark.parametrize(
    "text",
    [
        "open(Path(__file__).parent / 'data.txt')",
        "open(Path(__file__).resolve().parents[1] / 'data.txt')",
        "open(os.path.join(os.path.dirname(__file__), 'data.txt'))",
        "open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data.txt'))",
        "Path(__file__).with_name('data.json').read_text()",
        "FILE = Path(__file__).resolve()\nROOT = FILE.parents[0]\nopen(ROOT / 'data.txt')",
        "open(Path(torch.__file__).parent / 'version.txt')",
        "name = Path(__file__).stem\nopen('data.txt')",
        "path = sys.argv[1]\nopen(path)",
        "rest = sys.argv[1:]\nopen(rest[0])",
        "if len(sys.argv) > 2: open('data.txt')",
    ],
)
def test_a_file_that_reads_a_file_beside_it_may_be_commented(text: str) -> None:
    assert syntax_hash({"": f"# One.\n{text}"}) == syntax_hash({"": f"# Two.\n{text}"})


@pytest.mark.parametrize(
    "text",
    [
        "here = Path(__file__)\nfolder = here.parent\nopen(here)",
        "here = there = Path(__file__)\nopen(there)",
        "open(Path(__file__, '..', 'a.txt'))",
        "Path(__file__).with_name(NAME).read_text()",
        "open(Path(__file__).parent / 'other.py')",
        "open(Path(__file__).parent / Path(__file__).name)",
        "open(os.path.basename(__file__))",
        "def f(x=__file__): return open(x)",
        "args = sys.argv\nopen(args[0])",
        "open(sys.argv[0:][0])",
        "open(sys.argv[-1])",
        "open(getattr(m, '__file__'))",
    ],
)
def test_a_file_that_may_read_itself_by_its_path_counts_as_it_is(text: str) -> None:
    assert syntax_hash({"": f"# One.\n{text}"}) != syntax_hash({"": f"# Two.\n{text}"})


def test_a_file_that_is_nested_too_deeply_counts_as_it_is() -> None:
    assert syntax_hash({"": f"x = {'-' * 200_000}1"}) != syntax_hash({"": "x = 1"})


def test_a_comment_that_counts_is_explained(
    use: Use, run: Run, options: Options, tmp_path: Path
) -> None:
    use(
        f"{PARTS}\nwith open(__file__) as file:\n    TEXT = file.read()\n",
        helping=HELPING,
    )
    run(SPACE)
    edited("RATE = 0.5", "RATE = 0.5  # a comment")(tmp_path)
    registry.load_file(tmp_path / "own_parts.py")
    assert (
        "own_parts.py changed (comments and docstrings count, because a file reads"
        " texts, and names __file__)" in why(SPACE, options)[0]
    )


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("x = 1", "x = True"),
        ("x = 1", "x = 1.0"),
        ("x = 'a'", "x = b'a'"),
        ("x = 1", "y = 1"),
        ("a = b = 1", "b = a = 1"),
        ("x = (1,)", "x = [1]"),
        ("if x: pass", "if x: breakpoint()"),
        ("def f(): pass", "async def f(): pass"),
        ("from . import a", "from .. import a"),
        ("x = f'{a}'", "x = f'{a!r}'"),
        ("x = f'{a:.2f}'", "x = f'{a:.3f}'"),
        ("def f(a, /): pass", "def f(a): pass"),
        ("def f(a, *, b): pass", "def f(a, b): pass"),
        ("x: int = 1", "x = 1"),
        ("x = -1", "x = 1"),
        ("x = None", "x = ..."),
        ("x = a < b < c", "x = (a < b) < c"),
        ("def f():\n 'doc'\n 'second'", "def f():\n 'doc'"),
    ],
)
def test_different_programs_differ(first: str, other: str) -> None:
    assert syntax_hash({"": first}) != syntax_hash({"": other})


@pytest.mark.parametrize(
    "helper",
    [
        "def lr_of(f):\n    return float(f.__doc__)\n",
        "from m import __doc__\n",
        "from torch.jit import script\n",
        "import mine\nx = open(mine.__file__).read()\n",
        "this is no Python (\n",
    ],
)
def test_one_file_may_read_another(helper: str) -> None:
    files = {"": "def f():\n    'doc'\n", "helper.py": helper}
    other = {"": "def f():\n    'other'\n", "helper.py": helper}
    assert syntax_hash(files) != syntax_hash(other)
    assert syntax_hash({**files, "helper.py": "x = 1"}) == syntax_hash(
        {**other, "helper.py": "x = 1"}
    )


def test_what_python_reads_of_comments_counts() -> None:
    script = "# -*- coding: utf-8 -*-\nprint(len('x'))\n"
    assert syntax_hash({"a.py": script}) != syntax_hash(
        {"a.py": script.replace("utf-8", "latin-1")}
    )
    program = "#!/usr/bin/env python3\nprint(1)\n"
    assert syntax_hash({"a.py": program}) != syntax_hash(
        {"a.py": program.replace("python3", "python3 -O")}
    )
    assert syntax_hash({"a.py": f"# a comment\n{script[24:]}"}) == syntax_hash(
        {"a.py": script[24:]}
    )


def test_a_file_of_data_counts_as_it_is() -> None:
    assert syntax_hash({"a.txt": "x  # 1"}) != syntax_hash({"a.txt": "x  # 2"})
    assert syntax_hash({"a.py": "x  # 1"}) == syntax_hash({"a.py": "x  # 2"})
    assert syntax_hash({"a.py": "x"}) != syntax_hash({"b.py": "x"})


def test_the_hash_is_the_same_in_every_version_of_python() -> None:
    text = (
        '"""Doc."""\nimport a.b as c\nX: int = -1_000\n@d(1)\nclass A(B, m=C):\n'
        "    def f(self, x, /, y=1, *z, k=2, **w) -> None:\n"
        "        return [i async for i in x if i] or {**w, 'a': b'b'} or (yield)\n"
        "with open(x) as f, g: print(f'{x!r:>{w}}')\n"
        "match x:\n    case {'a': 1, **r} if r: pass\n    case _: del x\n"
        "try: raise A from B\nexcept (A, B) as e: assert e, 'x'\nfinally: lambda: 1j\n"
    )
    assert syntax_hash({"": text}) == "aac8bc37e484b0b1933f"


# The hashes that 3.11.7, 3.12.7, 3.13.2 and 3.14.2 have returned.
F_STRINGS = {
    "f'{x:>{w}}'": "343b3b21f54f7cbb7a6c",
    "f'{x:>{w}.{w}f}' 'tail'": "c40980c0dc1d274687fb",
    "f'a' 'b' f'{x}' 'c'": "975a886b579814368fa2",
    "f'' f'{x = !r:>{w}}'": "a755fb133ce7d3f2a35a",
    "f'{{}}{x:a{x}b{x}c}{{y}}'": "c5b0756e85fbe89f348c",
    "f'{x:}{w!r:}'": "bf11f4fe2d88fdfbc7cb",
    "x = 'é\U0001fae8\u0378'": "d63dbfb405e65fb701c9",
    "f'é{x}\U0001fae8'": "2fb910f69c7da50cdfd6",
}


@pytest.mark.parametrize("text", F_STRINGS)
def test_texts_have_the_same_hash_in_every_version_of_python(text: str) -> None:
    assert syntax_hash({"": text}) == F_STRINGS[text]


def test_a_study_that_is_imported_keeps_the_identities(
    use: Use, run: Run, options: Options, tmp_path: Path
) -> None:
    from ablate.store.other_store import import_studies

    file = use(PARTS, helping=HELPING)
    assert run(SPACE).trained == 4
    moved_to = tmp_path / "there"
    moved_to.mkdir()
    shutil.copy(Path(options.url), moved_to / "first.db")
    target = Options(moved_to, str(moved_to / "second.db"))
    edited("RATE = 0.5", "RATE = 0.5  # a comment")(tmp_path)
    registry.load_file(file)
    import_studies(str(moved_to / "first.db"), target.url)
    assert why(SPACE, target) == []


def test_a_trial_that_failed_is_compared_with_itself(
    tmp_path: Path, use: Use, run: Run, options: Options
) -> None:
    """Not with a row of another level that was trained."""
    parts = (
        "import ablate\n"
        '@ablate.trainer(factors={"kernel": [3, 5]}, metrics={"a": "max"})\n'
        "def train(trial):\n"
        "    for epoch in trial.epochs():\n"
        "        assert trial.levels['kernel'] == 3\n"
        "        trial.report(a=1.0)\n"
    )
    text = (
        "question: q?\nname: own\ntrainer: train\nseeds: 1\nrecipe: {epochs: 1}\n"
        "factors: {kernel: [3, 5]}\n"
    )
    use(parts)
    assert run(text).failed == 1
    registry.clear()
    use(parts.replace("== 3", "in (3, 5)"))
    declared = space.load(text, "own.yaml")
    shown = pipeline.preview(declared, options.url, options)
    lines = pipeline.why_new(shown, options.url)
    assert lines[0].startswith("row 0 (1 trial): trainer train: own_parts.py changed")
    assert lines[1].startswith(
        "row 1 (1 trial): trainer train: own_parts.py changed (it failed before)"
    )


def test_an_upgraded_package_is_named_and_retrains_nothing(
    use: Use, run: Run, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(
        "import ablate\n"
        '@ablate.trainer(factors={"kernel": [3, 5]}, metrics={"a": "max"})\n'
        "def train(trial):\n"
        "    for epoch in trial.epochs():\n"
        "        trial.report(a=1.0)\n"
    )
    text = (
        "question: q?\nname: own\ntrainer: train\nseeds: 1\nrecipe: {epochs: 1}\n"
        "factors: {kernel: [3, 5]}\n"
    )
    assert run(text).trained == 2
    shown = pipeline.preview(space.load(text, "own.yaml"), options.url, options)
    assert pipeline.why_new(shown, options.url) == []
    now = explaining.versions()
    monkeypatch.setattr(explaining, "versions", lambda: now | {"timm": "9.9.9"})
    shown = pipeline.preview(space.load(text, "own.yaml"), options.url, options)
    assert not shown.to_train
    (line,) = pipeline.why_new(shown, options.url)
    assert line.startswith(f"Since the last run: timm {now['timm']} → 9.9.9. ")
    assert run(text).trained == 0
