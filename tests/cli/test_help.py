"""`--help` fits a terminal of 80 columns, and its examples are commands that parse."""

from __future__ import annotations

import os
import shlex
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ablate.cli.app import app, command
from ablate.cli.verbs import GROUPS, USUAL, Verb
from tests.conftest import Say
from tests.own.test_registry import documented_factor

GOLDEN = Path(__file__).parents[1] / "golden" / "help.txt"
VERBS = list(chain.from_iterable(GROUPS.values()))
EACH_VERB = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)


def help_of(*words: str) -> str:
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    return str(done.output)


def test_the_list_of_verbs() -> None:
    done = CliRunner().invoke(app, ["help", "all"], env={"COLUMNS": "80"})
    text = str(done.output)
    short = help_of().splitlines()
    verbs = [line.split()[0] for line in short if line.startswith("  ")]
    assert set(verbs) >= USUAL
    assert short[-1].endswith(
        "other verbs: ablate help all. Help on one: ablate help VERB"
    )
    assert not any(line.startswith("  abandon") for line in short)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
    assert "..." not in text.partition("Options:")[2], "no line is cut off"
    assert all(len(line) <= 80 for line in text.splitlines())


def test_each_verb_is_listed_once() -> None:
    group: Any = command()
    assert {*group.commands} == {*(verb.name for verb in VERBS), "help"}
    assert len(group.commands) == len(VERBS) + 1
    assert {verb.name for verb in VERBS} > USUAL


def test_help_on_a_verb() -> None:
    done = CliRunner().invoke(app, ["help", "plan"], env={"COLUMNS": "80"})
    assert (
        "plan [OPTIONS] {FILE}" in done.output or "plan [OPTIONS] FILE" in done.output
    )
    assert "Examples:" in done.output


def test_help_on_what_is_no_verb(say: Say) -> None:
    code, _, error = say("help", "plann")
    assert code == 2
    assert "did you mean 'plan'" in error


@EACH_VERB
def test_help_fits_80_columns_and_has_examples(verb: Verb) -> None:
    lines = help_of(verb.name).splitlines()
    # The levels of --format and the like are one word.
    assert all(len(line) <= 80 or "<" in line for line in lines)
    assert "  Examples:" in lines
    assert verb.examples
    for example in verb.examples:
        assert f"    ablate {example}" in lines


@EACH_VERB
def test_examples_parse(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The file of parts that an example names.
    Path("mine.py").write_text(documented_factor())
    group: Any = command()
    for example in verb.examples:
        name, *words = shlex.split(example.partition(" > ")[0])
        assert name == verb.name
        with group.make_context("ablate", [name]) as context:
            group.commands[name].make_context(name, words, parent=context)
