"""Each command that the documentation shows runs as it is printed.

The commands of the tutorials run in `test_pages.py`, with their outputs. Those that need
a real Ray run in `test_real_ray.py`. All others run here, in a folder with small files
and finished studies of the names that the pages use.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import ablate
from ablate.own import registry
from ablate.parts import trainer_named
from ablate.pipeline import Options
from ablate.records import Decision, Proposal
from ablate.store.chains import add_proposal
from ablate.store.reader import Reader
from ablate.trained.chain import Chain
from docs import make_tutorials
from tests.commits import repository
from tests.conftest import Say
from tests.docs.commands import PLACEHOLDERS, ROOT, Command, commands, snippets

COMMANDS = commands("ablate")
# A sentence about the program.
COMMANDS.pop("ablate", None)
TUTORIALS = {f"docs/{name}" for name in make_tutorials.PAGES}
# The trials of the pages, by the first characters of their hashes.
TRIALS = {"1f0c9a", "3f9a2c"}
# Beside 0: `gate` has a code for each verdict, and `review` ends with 1 if it objects.
# The study of the examples has no failed trial.
CODES = {
    "gate": {0, 3, 4, 5},
    "chain": {0, 3, 4, 5},
    "compare": {0, 3, 4, 5},
    "review": {0, 1},
    "abandon": {2},
}
# Pages whose commands are typed in a repository with a training script.
OF_A_REPOSITORY = ("docs/commits.md", "docs/agents.md", "docs/reference/verbs.md")
# What runs elsewhere.
ELSEWHERE = {
    "ablate dashboard": "tests/browser/test_dashboard.py",
    "ablate dashboard --allow-host NAME": "tests/cli/test_guard.py",
    "ablate dashboard --host 0.0.0.0": "tests/cli/test_serve.py",
    "ablate check mine.py": "tests/own/test_examples.py",
    "ablate doctor": "tests/cli/test_environment.py",
    "ablate run shares.yaml --executor local": "tests/gpu/test_gpu.py",
    "ablate mcp --runs agents --max-hours 8 --max-trials 200": "tests/cli/test_mcp.py",
    "ablate verify-costs": ".ci/run",
    "ablate verify-costs augvit": ".ci/run",
    "ablate verify-costs iffn": ".ci/run",
}
RUN = {
    text: command
    for text, command in COMMANDS.items()
    if command.page not in TUTORIALS and text not in ELSEWHERE and not command.needs_ray
}
# Those of the README; the others are proofs.
OFTEN = {text for text, command in RUN.items() if command.page == "README.md"}


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize(
    "text",
    [
        *(text for text in RUN if text in OFTEN),
        *(
            pytest.param(text, marks=pytest.mark.proof)
            for text in RUN
            if text not in OFTEN
        ),
    ],
)
def test_it_runs(
    text: str,
    prepared: Path,
    say: Say,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = RUN[text]
    folder = tmp_path / "examples" / "reader"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    if shown.words[1:2] != ("init",):
        shutil.copytree(prepared, folder, dirs_exist_ok=True)
        write_files(shown.page, folder)
    words = meant(shown)
    code, out, err = say(*words)
    if "Missing argument" in err and shown.in_text:
        # The sentence is about an option.
        code, out, err = say(words[0], "--help")
        assert all(word in out for word in words[1:])
    assert code in CODES.get(words[0], {0}), err
    assert out or err


def write_files(page: str, folder: Path) -> None:
    """Writes the files that a page shows, and those that it assumes."""
    for snippet in snippets():
        if snippet.page == page and snippet.file:
            (folder / snippet.file).write_text(snippet.text)
    if page == "docs/coming-from.md":
        (folder / "train.py").write_text("the reader's own script")
    if page in OF_A_REPOSITORY:
        make_repository(folder)
    if page == "docs/own.md":
        shutil.copytree(ROOT / "examples" / "characters", folder, dirs_exist_ok=True)
        # The example trains on the licence of the repository.
        shutil.copy(ROOT / "LICENSE", folder.parents[1])


def make_repository(folder: Path) -> None:
    """Makes a folder a repository with the branches that the pages name, and chains."""
    repository.git(folder, "init", "--quiet", "--initial-branch=main")
    texts = {"train.py": repository.SCRIPT, "model.py": repository.MODEL}
    if not (folder / "mine.py").exists():
        texts["mine.py"] = repository.DECLARATION
    texts[".gitignore"] = "runs\nother\nsearch_spaces\ntensorboard\n"
    repository.write(folder, texts)
    repository.commit(folder, "first")
    better = {"model.py": repository.MODEL.replace("1.0", "2.0")}
    tip = repository.branch(folder, "my-branch", better)
    repository.write(folder, better)
    patch = repository.git(folder, "diff")
    repository.git(folder, "checkout", "--quiet", "model.py")
    (folder / "my.patch").write_text(f"{patch}\n")
    # A chain that has kept a proposal.
    registry.load_file(folder / "mine.py")
    chain = Chain("ours", Options(folder / "runs"))
    chain.begin("main")
    kept = Proposal(
        chain="ours",
        number=1,
        name="my-branch",
        identity=trainer_named("train").tree("my-branch").identity,
        source=tip,
        decision=Decision.KEEP,
    )
    add_proposal(chain.options.url, kept)
    runs = ablate.open_chain("runs", runs=folder / "runs")
    runs.begin_reported("first", {0: 3.28, 1: 3.31}, direction="min")
    open_ = ablate.open_chain("open", runs=folder / "runs")
    open_.begin_reported("first", {0: 3.28}, direction="min")
    open_.report("rmsnorm", {0: 3.25})


def meant(shown: Command) -> list[str]:
    """The words of a command after `ablate`, with real names for placeholders."""
    words = [PLACEHOLDERS.get(word, word) for word in shown.words[1:]]
    words = [first_trial() if word in TRIALS else word for word in words]
    if words[-2:] == ["--to", "mine.yaml"]:
        words[-1] = "drawn.svg"
    # The chain of the page has begun, and has no open proposal.
    if words[:2] == ["chain", "begin"]:
        words[2] = "another"
    if words[:2] == ["chain", "withdraw"]:
        words[2] = "open"
    options = all(word.startswith("--") for word in words[1:])
    if shown.in_text and options:
        # The sentence is about a verb or its option.
        words = [*words[:1], "--help"]
    return words


def first_trial() -> str:
    with Reader("sqlite:///runs/ablate.db") as reader:
        return str(reader.query("SELECT hash FROM trials ORDER BY 1")[1][0][0])[:6]


def test_each_exception_is_a_command_of_a_page() -> None:
    assert set(ELSEWHERE) <= set(COMMANDS)
    for place in ELSEWHERE.values():
        assert (ROOT / place).exists()
