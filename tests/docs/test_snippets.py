"""The code that the documentation shows is read or runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from ablate import space
from ablate.store.queries import READER_ROLE
from docs import make_reference
from tests.docs.commands import ROOT, Snippet, commands, snippets

# Blocks that other tests run, by their pages and the start of a line.
ELSEWHERE = {
    ("docs/own.md", "import train"): "tests/own/test_examples.py",
    ("docs/own.md", "trainer: characters"): "tests/own/test_examples.py",
    ("docs/own.md", "digits = ablate.command("): "tests/own/test_examples.py",
    ("docs/own.md", "gpt = ablate.command("): "tests/own/test_readers.py",
    ("docs/own.md", "print(json.dumps({"): "tests/own/test_examples.py",
    ("docs/own.md", "def two_layers("): "tests/own/test_examples.py",
    ("docs/own.md", "backbone: two_layers"): "tests/own/test_examples.py",
    (
        "docs/own.md",
        "factors: {norm: [batch, layer], gate",
    ): "tests/own/test_examples.py",
    ("docs/own.md", "factors: {recipe.augmentation"): "tests/own/test_examples.py",
    ("docs/own.md", "NORM = ablate.Diagnostic("): "tests/own/test_examples.py",
    ("docs/own.md", "diagnostics: [mean_norm]"): "tests/own/test_examples.py",
    ("docs/own.md", "FACTOR = Factor("): "tests/docs/test_commands.py",
    ("docs/own.md", "[tool.ablate]"): "tests/own/test_registry.py",
    ("docs/data.md", "@ablate.dataset()"): "tests/own/test_examples.py",
    ("docs/commits.md", "  commit: [main"): "tests/commits/test_documentation.py",
    ("docs/agents.md", "PROPOSE ="): "tests/commits/test_documentation.py",
    ("docs/coming-from.md", "train = ablate.command("): "tests/docs/test_commands.py",
    ("docs/coming-from.md", "trainer: train"): "tests/docs/test_commands.py",
    ("CONTRIBUTING.md", "_share("): "tests/tasks/test_contributing.py",
    ("CONTRIBUTING.md", "HEADS = ("): "tests/tasks/test_contributing.py",
    ("CONTRIBUTING.md", "Column("): "tests/tasks/test_contributing.py",
    ("CONTRIBUTING.md", "class OneSlot(Slots):"): "tests/tasks/test_contributing.py",
}
# A page of the dashboard, which runs in a process of Streamlit.
SCREEN = "import streamlit as st"
SHOW = """
from streamlit.testing.v1 import AppTest
page = AppTest.from_file("noise.py").run(timeout=60)
assert not page.exception, page.exception
print(*page.selectbox[0].options)
"""
# What stands around a snippet for Ray Tune in a reader's script.
TUNE = """
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

def train(config):
    tune.report({"acc": config["seed"]})

ray.init(num_cpus=2, include_dashboard=False)
SNIPPET
assert len(results) == 9, results
ray.shutdown()
"""
# The sweep of another tool, beside ours.
THEIRS = "program: train.py"
# What the script of a reader does in a test: it writes down how it was called.
SCRIPT = """
import sys
with open("calls", "a") as file:
    print(*sys.argv[1:], file=file)
"""


def has(snippet: Snippet, start: str) -> bool:
    return any(line.startswith(start) for line in snippet.text.splitlines())


def place_of(snippet: Snippet) -> str:
    """The test that runs a snippet; empty if it is one of this file."""
    for (page, start), place in ELSEWHERE.items():
        if snippet.page == page and has(snippet, start):
            return place
    return ""


def here(language: str) -> list[Any]:
    """The blocks in a language that the tests of this file run."""
    return [
        pytest.param(snippet, id=f"{snippet.page}: {snippet.text.splitlines()[0][:50]}")
        for snippet in snippets(language)
        if not place_of(snippet)
    ]


def test_each_language_has_its_test() -> None:
    languages = {snippet.language for snippet in snippets()}
    commands_and_outputs = {"", "console", "text"}
    sphinx = {"{eval-rst}", "{toctree}"}
    tested = {"yaml", "python", "bash", "json", "sql", "toml"}
    assert languages == tested | commands_and_outputs | sphinx


def test_each_exception_is_a_block_of_a_page() -> None:
    for (page, start), place in ELSEWHERE.items():
        shown = [one for one in snippets() if one.page == page and has(one, start)]
        assert len(shown) == 1, start
        assert (ROOT / place).exists()


@pytest.mark.parametrize("snippet", here("yaml"))
def test_a_space_or_a_part_of_one_is_read(snippet: Snippet) -> None:
    if has(snippet, THEIRS):
        assert yaml.safe_load(snippet.text)["method"] == "grid"
        return
    if snippet.page == "docs/reference/space.md":
        # test_reference.py reads each key beside what it needs.
        assert yaml.safe_load(snippet.text)
        return
    text = snippet.text
    if not has(snippet, "question:"):
        both = {"shortcuts.count": [0, 2], "ffn.kernel": ["none", 3]}
        part = yaml.safe_load(text)
        text = yaml.safe_dump(
            make_reference.example_space(text) | {"factors": both} | part
        )
    assert space.load(text, "shown.yaml").factors


def is_plain(snippet: Snippet) -> bool:
    """Whether Python runs it as it is, without Ray or Streamlit."""
    return not has(snippet, SCREEN) and "tune.Tuner(" not in snippet.text


@pytest.mark.proof
@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    "snippet", [one for one in here("python") if is_plain(one.values[0])]
)
def test_python_runs(
    snippet: Snippet,
    prepared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"optuna": optuna, "train": score}
    exec(snippet.text, names)
    assert len(names) > 3


def score(kernel: object, lr: float) -> float:
    """Stands for the training of a reader who comes from Optuna."""
    return lr * (2 if kernel == 3 else 1)


@pytest.mark.proof
def test_the_page_for_the_dashboard_shows_the_studies(
    prepared: Path, tmp_path: Path
) -> None:
    (snippet,) = [one for one in snippets("python") if has(one, SCREEN)]
    (tmp_path / "noise.py").write_text(snippet.text)
    store = prepared / "runs" / "ablate.db"
    shown = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "dashboards"),
            "ABLATE_STORE": f"sqlite:///{store}",
        },
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert "mine" in shown.stdout.split()


@pytest.mark.ray
def test_the_snippet_for_ray_tune_runs(tmp_path: Path) -> None:
    """In a process of its own: it starts a Ray that is not one of ours."""
    (snippet,) = [one for one in snippets("python") if "tune.Tuner(" in one.text]
    (tmp_path / "tuned.py").write_text(TUNE.replace("SNIPPET", snippet.text))
    # Settings of our own Ray are not those of a reader.
    plain = {key: text for key, text in os.environ.items() if key[:4] != "RAY_"}
    # In a folder of its own, Ray does not find a cluster that runs on this machine, or
    # that has left its address. The path of a socket in it must be short.
    with tempfile.TemporaryDirectory(prefix="ablate-ray-") as folder:
        subprocess.run(
            [sys.executable, "tuned.py"],
            cwd=tmp_path,
            env={**plain, "HOME": str(tmp_path), "RAY_TMPDIR": folder},
            check=True,
            timeout=300,
        )


@pytest.mark.parametrize("snippet", here("bash"))
def test_commands_of_other_tools_are_of_a_shell(
    snippet: Snippet, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "python").symlink_to(sys.executable)
    subprocess.run(
        ["bash", "-euc", snippet.text],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        check=True,
    )
    calls = (tmp_path / "calls").read_text().splitlines()
    # The loop calls the script for each cell and seed, Hydra once for all.
    assert len(calls) == (9 if "for " in snippet.text else 1)


def test_the_configuration_of_an_agent_is_a_command_of_ours() -> None:
    (snippet,) = snippets("json")
    server = json.loads(snippet.text)["mcpServers"]["ablate"]
    assert server["command"] == "ablate"
    shown = commands("ablate")[
        "ablate mcp --runs agents --max-hours 8 --max-trials 200"
    ]
    assert tuple(server["args"]) == shown.words[1:]


def test_the_role_for_readers_is_the_tested_one() -> None:
    (snippet,) = snippets("sql")
    assert snippet.text.strip().rstrip(";") == READER_ROLE.strip().rstrip(";")


def test_make_has_the_targets_that_the_pages_name() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for text, command in commands("make").items():
        targets = [word for word in command.words[1:] if "=" not in word]
        assert len(targets) <= 1, text
        for target in targets:
            assert f"\n{target}:" in makefile, text
