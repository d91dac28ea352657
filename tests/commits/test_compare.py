"""Commits are trained, and `ablate compare` says which of them differ."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ablate import pipeline, space
from ablate.errors import AblateError
from ablate.own import registry
from ablate.pipeline import Options
from ablate.records import Plan
from ablate.results.study import Study
from tests.commits.conftest import Command, Done
from tests.commits.repository import (
    DECLARATION,
    MODEL,
    SCRIPT,
    SPACE,
    branch,
    commit,
    git,
    state,
    write,
)

HELPS, HURTS, SAME, INCONCLUSIVE = 0, 3, 4, 5
BETTER = ("main", "better", "--epochs", "1", "--seeds")
Compare = Callable[..., Done]


@pytest.fixture
def compare(repository: Path, command: Command) -> Compare:
    """Runs `ablate compare WORDS` in the repository."""
    return lambda *words: command(
        "compare", *words, "--with", "mine.py", "--executor", "inline"
    )


def test_a_better_commit_helps_and_a_worse_one_hurts(compare: Compare) -> None:
    done = compare(*BETTER, "4")
    assert done.code == HELPS, done.err
    assert "commit = better helps: +1.0" in done.out
    assert "differs from main in model.py" in done.err
    turned = ("better", "main", "--seeds", "4", "--epochs", "1")
    known = compare(*turned)
    assert "8 known" in known.err, "each commit is trained once"
    assert known.code == INCONCLUSIVE, "its results were known before"
    assert compare(*turned, "--runs", "fresh").code == HURTS


@pytest.mark.ray
def test_commits_are_trained_on_ray(repository: Path) -> None:
    words = ("compare", *BETTER, "4", "--with", "mine.py", "--cpus", "2")
    done = subprocess.run(
        [sys.executable, "-m", "ablate", *words],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == HELPS, done.stderr
    assert "commit = better helps" in done.stdout
    assert not git(repository, "status", "--porcelain")


def test_what_a_name_stood_for_is_what_is_trained(
    repository: Path, command: Command
) -> None:
    write(repository, {"space.yaml": SPACE})
    done = command("run", "space.yaml", "--with", "mine.py", "--executor", "inline")
    assert done.code == 0, done.err
    cells = Study("space", Options(Path("runs"), "").url).results().cells
    assert [round(sum(cell.values.values()) / 3) for cell in cells] == [1, 2]
    # The checkout is at main, whose files were not used for `better`.
    assert (repository / "model.py").read_text() == MODEL


def test_a_commit_that_trains_the_same_is_not_trained(
    repository: Path, compare: Compare
) -> None:
    done = compare("main", "comment", "--epochs", "1")
    assert done.code == SAME
    assert "trains the same as main" in done.err
    assert json.loads(compare("main", "comment", "--format", "json").out) == []
    assert not (repository / "runs").exists()


@pytest.mark.proof
def test_the_worst_of_several_verdicts_decides(
    repository: Path, compare: Compare
) -> None:
    branch(repository, "worse", {"model.py": MODEL.replace("1.0", "0.0")})
    done = compare("main", "better", "worse", "--seeds", "5", "--epochs", "1")
    assert done.code == HURTS


@pytest.mark.proof
def test_two_names_of_one_commit_beside_the_first(
    repository: Path, compare: Compare
) -> None:
    git(repository, "branch", "ü/same", "better")
    words = ("main", "better", "ü/same", "--seeds", "3", "--epochs", "1")
    first = compare(*words)
    assert first.code in (HELPS, INCONCLUSIVE), first.err
    again = compare(*words, "--format", "json")
    assert again.code == first.code, again.err
    assert len(json.loads(again.out)) == 1


@pytest.mark.proof
def test_json_holds_the_effects(compare: Compare) -> None:
    (effect,) = json.loads(compare(*BETTER, "4", "--format", "json").out)
    assert effect["verdict"] == "helps"
    assert effect["change"] == "commit = better"


@pytest.mark.proof
def test_the_checkout_is_unchanged_and_nothing_takes_long(
    repository: Path, compare: Compare
) -> None:
    write(repository, {"model.py": MODEL.replace("1.0", "1.5")})
    git(repository, "status")
    before = state(repository)
    lines = [git(repository, *words) for words in (("status",), ("worktree", "list"))]
    began = time.perf_counter()
    done = compare("main", "better", "worktree", "--seeds", "3", "--epochs", "1")
    taken = time.perf_counter() - began
    assert done.code in (HELPS, INCONCLUSIVE), done.err
    after = state(repository)
    assert {name: after[name] for name in after if name[:5] != "runs/"} == before
    assert lines == [
        git(repository, *words) for words in (("status",), ("worktree", "list"))
    ]
    # Nine trainings of 0.1 s each, in 2 s: the limit is for busy machines.
    assert taken < 30


@pytest.mark.proof
def test_the_package_of_a_commit_comes_before_an_installed_one(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `pip install -e`, whose files are those of the checkout."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    texts = {
        "lib/package/__init__.py": MODEL,
        "jobs/train.py": SCRIPT.replace("from model", "from package"),
        "mine.py": DECLARATION.replace("train.py", "jobs/train.py"),
    }
    write(folder, texts)
    commit(folder, "first")
    branch(folder, "better", {"lib/package/__init__.py": MODEL.replace("1.0", "2.0")})
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))
    monkeypatch.syspath_prepend(str(folder / "lib"))
    words = ("--with", "mine.py", "--executor", "inline")
    done = command("compare", *BETTER, "4", *words)
    assert done.code == HELPS, done.err
    registry.clear()


@pytest.mark.proof
def test_a_moved_branch_is_trained_again_and_an_old_result_is_kept(
    repository: Path, compare: Compare
) -> None:
    compare(*BETTER, "3")
    git(repository, "checkout", "--quiet", "better")
    write(repository, {"model.py": MODEL.replace("1.0", "4.0")})
    commit(repository, "more")
    git(repository, "checkout", "--quiet", "main")
    done = compare(*BETTER, "3")
    assert "3 known, 3 to train" in done.err, done.err
    assert "commit = better helps: +3.0" in done.out


@pytest.mark.proof
def test_a_run_that_was_stopped_goes_on(compare: Compare, command: Command) -> None:
    stopped = compare(*BETTER, "4", "--max-trials", "3")
    assert stopped.code == INCONCLUSIVE, "3 would stand for hurts"
    again = compare(*BETTER, "4", "--max-trials", "3", "--format", "json")
    assert json.loads(again.out)[0]["change"] == "commit = better"
    assert "The budget is used up" in stopped.err
    words = ("--with", "mine.py", "--executor", "inline", "--max-trials", "100")
    done = command("resume", *words)
    assert done.code == 0, done.err
    assert "5 trials trained, 3 known before" in done.err


@pytest.mark.proof
def test_a_trial_is_reproduced_in_its_commit(
    repository: Path, compare: Compare, command: Command
) -> None:
    compare(*BETTER, "2")
    plan = planned(factors={"commit": ["main", "better"]})
    trial = plan.cells[1].trials[0].hash
    done = command("reproduce", trial, "--with", "mine.py")
    assert done.code == 0, done.out + done.err


def test_a_trial_is_tried_in_its_commit(repository: Path, command: Command) -> None:
    write(repository, {"space.yaml": SPACE})
    done = command("try", "space.yaml", "--row", "1", "--with", "mine.py")
    assert done.code == 0, done.err
    reports = [json.loads(line) for line in done.out.splitlines() if line[0] == "{"]
    assert reports[-1]["accuracy"] > 1.5
    assert not (repository / "runs").exists()


@pytest.mark.proof
def test_settings_of_the_trainer_can_be_chosen(
    repository: Path, compare: Compare
) -> None:
    declaration = DECLARATION.replace(
        "{epochs}", "{epochs} --norm {norm} --lr {recipe.lr}"
    ).replace("metrics=", 'factors={"norm": ["rms", "layer"]}, metrics=')
    script = SCRIPT.replace(
        "asked =",
        'parser.add_argument("--norm")\n'
        'parser.add_argument("--lr", type=float)\n'
        "asked =",
    ).replace("+ noise", '+ noise + 10 * asked.lr * (asked.norm == "layer")')
    write(repository, {"mine.py": declaration, "train.py": script})
    commit(repository, "settings")
    branch(repository, "best", {"model.py": MODEL.replace("1.0", "2.0")})
    chosen = ("--set", "norm=layer", "--set", "recipe.lr=1.0")
    compare("main", "best", "--seeds", "3", "--epochs", "1", *chosen)
    cells = Study("compare/main..best", Options(Path("runs"), "").url).results().cells
    assert [round(sum(cell.values.values()) / 3) for cell in cells] == [11, 12]


@pytest.mark.proof
def test_two_studies_are_printed_side_by_side(
    compare: Compare, command: Command
) -> None:
    compare(*BETTER, "2")
    compare("better", "main", "--seeds", "3", "--epochs", "1")
    names = ("compare/main..better", "compare/better..main")
    done = command("compare", *names)
    assert done.code == 0, done.err
    assert re.search(r"main +[01]\.\d+ ± 0\.\d+ \(2\) +\S+ ± \S+ \(3\)", done.out)
    rows = json.loads(command("compare", *names, "--format", "json").out)
    assert {row["commit"] for row in rows} == {"main", "better"}
    for row in rows:
        difference = row["second_mean"] - row["first_mean"]
        assert row["difference"] == pytest.approx(difference)
    for option in (["--seeds", "3"], ["--max-trials", "2"], ["--metric", "accuracy"]):
        done = command("compare", *names, *option)
        assert done.code == 2
        assert "no effect" in done.err
    for words, message in (
        ([names[0], names[0]], "two different studies"),
        ([names[0], "main"], "is a study"),
        ([names[0]], "two different studies"),
    ):
        done = command("compare", *words)
        assert done.code == 2
        assert message in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["main"], "two commits or more"),
        (["main", "main"], "main is named twice"),
        (["main", "nothing"], "no branch, tag or commit nothing"),
        (["main", "better", "--set", "norm"], "as in"),
        (["main", "better", "--set", "norm=layer"], "unknown factor 'norm'"),
        (["main", "better", "--set", "recipe.lr=[1]"], "as in"),
        (["main", "better", "--set", "recipe.lr=1"], "does not read recipe.lr"),
        (
            ["main", "better", "--set", "recipe.epochs=1", "--set", "recipe.epochs=2"],
            "has two levels",
        ),
        (["main", "better", "--metric", "loss"], "loss"),
        (["main", "better", "--trainer", "other"], "unknown trainer 'other'"),
        (["main", "better", "--seeds", "1"], "--seeds"),
    ],
)
def test_bad_input_is_one_message(
    repository: Path, compare: Compare, words: list[str], message: str
) -> None:
    done = compare(*words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert not (repository / "runs").exists()


@pytest.mark.parametrize(
    "name", ["809615e89100", "12345", "0x1f", "true", "null", "~a"]
)
def test_a_name_that_looks_like_another_value_is_a_name(
    repository: Path, compare: Compare, name: str
) -> None:
    git(repository, "update-ref", f"refs/heads/{name.strip('~')}", "comment")
    name = name.strip("~")
    done = compare("main", name, "--epochs", "1")
    assert done.code == SAME, done.err


def test_a_branch_that_looks_like_an_option_is_compared(
    repository: Path, command: Command
) -> None:
    git(repository, "update-ref", "refs/heads/-rf", "comment")
    done = command("compare", "main", "--with", "mine.py", "--", "-rf")
    assert done.code == SAME, done.err


def test_without_a_command_commits_cannot_be_compared(
    repository: Path, command: Command
) -> None:
    done = command("compare", "main", "better")
    assert done.code == 2
    assert "--with mine.py" in done.err


@pytest.mark.proof
def test_a_name_of_a_study_and_of_a_commit_is_refused(
    repository: Path, compare: Compare, command: Command
) -> None:
    write(repository, {"space.yaml": f"name: better{SPACE}"})
    command("run", "space.yaml", "--with", "mine.py", "--executor", "inline")
    done = compare("main", "better")
    assert done.code == 2
    assert "refs/heads/better" in done.err


def planned(**keys: Any) -> Plan:
    """The plan of a space with these keys, as the files are now."""
    registry.clear()
    registry.load_all(["mine.py"])
    document = {**yaml.safe_load(SPACE), "recipe": {"epochs": 1}, **keys}
    return pipeline.cost_plan(space.load(yaml.safe_dump(document), "space"), "no.db")


def refusal(**keys: Any) -> str:
    with pytest.raises(AblateError) as caught:
        planned(**keys)
    return str(caught.value)


def test_a_level_of_another_kind_is_refused(repository: Path) -> None:
    said = refusal(factors={"commit": ["main", 1234567]})
    assert "write it in quotation marks" in said


def test_a_function_does_not_train_in_a_commit(repository: Path) -> None:
    text = (
        "import ablate\n\n@ablate.trainer(metrics={'loss': 'min'})\n"
        "def train(trial):\n    pass\n"
    )
    write(repository, {"mine.py": text})
    assert "unknown factor 'commit'" in refusal()


def test_a_model_of_the_checkout_is_not_counted_for_commits(repository: Path) -> None:
    text = DECLARATION.replace("metrics=", "model=len, metrics=")
    write(repository, {"mine.py": text})
    assert "leave model= out" in refusal()


def test_a_commit_without_the_script_is_refused(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "empty")
    git(repository, "rm", "--quiet", "train.py")
    commit(repository, "no script")
    git(repository, "checkout", "--quiet", "main")
    said = refusal(factors={"commit": ["main", "empty"]})
    assert "empty has no file train.py" in said


def test_a_factor_called_commit_stays_that_of_its_trainer(repository: Path) -> None:
    text = DECLARATION.replace("{epochs}", "{epochs} --commit {commit}").replace(
        "metrics=", 'factors={"commit": ["a", "b"]}, metrics='
    )
    write(repository, {"mine.py": text})
    trials = planned(factors={"commit": ["a", "b"]}).trials
    assert {trial.architecture.settings["commit"] for trial in trials} == {"a", "b"}


def test_the_present_script_does_not_count_and_the_declaration_does(
    repository: Path,
) -> None:
    def hashes() -> set[str]:
        return {trial.hash for trial in planned().trials}

    before = hashes()
    write(repository, {"train.py": "print(2)\n"})
    assert hashes() == before
    text = DECLARATION.replace("--seed", "--fast --seed")
    write(repository, {"mine.py": text})
    assert hashes().isdisjoint(before)


@pytest.mark.proof
def test_a_comment_in_the_declaration_trains_nothing_again(
    repository: Path, compare: Compare
) -> None:
    compare(*BETTER, "2")
    write(repository, {"mine.py": f"# A comment.\n{DECLARATION}"})
    assert "0 trials trained, 4 known before" in compare(*BETTER, "2").err
