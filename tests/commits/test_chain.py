"""Chains: proposals are decided once, and what is kept becomes the baseline."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from pydantic import TypeAdapter

import ablate
from ablate.budget import Budget
from ablate.cli.agent_tools import Tools
from ablate.cli.answers import ANSWERS
from ablate.errors import AblateError, UnknownName
from ablate.own import registry
from ablate.records import Decision, Proposal
from ablate.store.chains import update_proposal
from ablate.store.reader import Reader
from ablate.trained import chain as chain_module
from tests.commits.conftest import Command, Done
from tests.commits.repository import (
    DECLARATION,
    MODEL,
    SCRIPT,
    branch,
    commit,
    git,
    make_repository,
    write,
)
from tests.store.postgres import postgres

KEEP, DISCARD, MORE = 0, 4, 5
Ours = Callable[..., Done]


@pytest.fixture
def ours(repository: Path, command: Command) -> Ours:
    """Runs `ablate chain ACTION ours WORDS` in the repository."""

    def run(action: str, *words: str) -> Done:
        own = () if action == "withdraw" else ("--with", "mine.py")
        trains = action in ("propose", "confirm") and "--reported" not in words
        executor = ("--executor", "inline") if trains else ()
        return command(
            *("chain", action, "ours", *words, *own, *executor, "--format", "json")
        )

    return run


def answer(done: Done) -> dict[str, object]:
    assert done.out, done.err
    read: dict[str, object] = json.loads(done.out)
    return read


@pytest.mark.proof
def test_a_better_commit_becomes_the_baseline(repository: Path, ours: Ours) -> None:
    first = ours("begin", "main", "--epochs", "1")
    assert first.code == KEEP
    assert answer(first)["decision"] == "baseline"
    done = ours("propose", "better")
    assert done.code == KEEP
    kept = answer(done)
    assert kept["decision"] == "keep"
    assert kept["baseline"] == "better"
    assert kept["difference"] == pytest.approx(1, abs=0.3)
    assert kept["seeds"] == 11
    assert kept["trials"] == kept["chain_trials"] == 22
    # Going back is now a proposal, and the worst one: its trials are known.
    back = ours("propose", "main")
    assert back.code == DISCARD
    assert answer(back)["trials"] == 0
    assert answer(back)["kept"] == 1
    assert not git(repository, "status", "--porcelain")


@pytest.mark.proof
def test_what_was_decided_stays_decided(repository: Path, ours: Ours) -> None:
    branch(repository, "worse", {"model.py": MODEL.replace("1.0", "0.5")})
    ours("begin", "main", "--epochs", "1")
    first = ours("propose", "worse")
    assert first.code == DISCARD
    again = ours("propose", "worse")
    assert answer(again) == answer(first)
    # A new commit with the same files is the same proposal.
    git(repository, "checkout", "--quiet", "worse")
    write(repository, {"model.py": f"# Worse.\n{MODEL.replace('1.0', '0.5')}"})
    commit(repository, "comment")
    assert answer(ours("propose", "worse")) == answer(first)


def test_a_commit_that_trains_the_same_costs_nothing(ours: Ours) -> None:
    ours("begin", "main", "--epochs", "1")
    done = ours("propose", "comment")
    assert done.code == DISCARD
    assert answer(done)["reason"] == "it trains the same as the baseline main"
    assert answer(done)["chain_trials"] == 0


@pytest.mark.proof
def test_a_limit_leaves_the_proposal_open(ours: Ours) -> None:
    ours("begin", "main", "--epochs", "1")
    stopped = ours("propose", "better", "--max-trials", "6")
    assert stopped.code == MORE
    assert answer(stopped)["seeds"] == 3
    assert ours("propose", "better", "--max-trials", "6").code == MORE
    other = ours("propose", "main~0^{}", "--max-trials", "6")
    assert other.code == KEEP, "it is the baseline"
    done = ours("propose", "better")
    assert done.code == KEEP
    assert answer(done)["trials"] == 22


@pytest.mark.proof
def test_only_one_proposal_is_open(repository: Path, ours: Ours) -> None:
    branch(repository, "other", {"model.py": MODEL.replace("1.0", "1.1")})
    ours("begin", "main", "--epochs", "1")
    ours("propose", "better", "--max-trials", "2")
    refused = ours("propose", "other")
    assert refused.code == 2
    assert "has the open proposal better" in refused.err
    assert ours("withdraw").code == DISCARD
    assert ours("propose", "other", "--max-trials", "4").code in (MORE, DISCARD)
    ours("withdraw")
    assert answer(ours("propose", "better", "--max-trials", "40"))["number"] == 3


@pytest.mark.proof
def test_a_commit_whose_training_fails_is_discarded(
    repository: Path, ours: Ours
) -> None:
    branch(repository, "broken", {"model.py": "def gain():\n    return 1 / 0\n"})
    ours("begin", "main", "--epochs", "1")
    done = ours("propose", "broken")
    assert done.code == DISCARD
    assert "its training failed at seed 0" in str(answer(done)["reason"])
    # The machine may have failed, so it may be proposed again, at the price of a number.
    again = ours("propose", "broken")
    assert again.code == DISCARD
    assert answer(again)["number"] == 2


def test_a_commit_that_diverges_is_discarded(repository: Path, ours: Ours) -> None:
    branch(repository, "nan", {"model.py": "def gain():\n    return float('nan')\n"})
    ours("begin", "main", "--epochs", "1")
    done = ours("propose", "nan")
    assert done.code == DISCARD
    assert answer(done)["reason"] == "its seeds speak against it"


@pytest.mark.proof
def test_the_last_baseline_is_compared_with_the_first_on_fresh_seeds(
    ours: Ours, command: Command
) -> None:
    ours("begin", "main", "--epochs", "1")
    nothing = ours("confirm", "--seeds", "4")
    assert nothing.code == 2
    assert "there is nothing to confirm" in nothing.err
    ours("propose", "better")
    done = ours("confirm", "--seeds", "4")
    assert done.code == KEEP
    assert answer(done)["verdict"] == "helps"
    assert "baseline, seed 1100" in done.err
    listed = command("chain", "list", "ours")
    assert "better" in listed.out
    # The studies of a chain are not among the others.
    assert "chain/" not in command("status").out


@pytest.mark.proof
def test_a_baseline_whose_branch_is_gone_is_still_trained(
    repository: Path, ours: Ours
) -> None:
    ours("begin", "main", "--epochs", "1")
    ours("propose", "better")
    branch(repository, "best", {"model.py": MODEL.replace("1.0", "3.0")})
    git(repository, "branch", "--quiet", "-D", "better")
    assert ours("propose", "best").code == KEEP


@pytest.mark.proof
def test_a_chain_that_is_killed_goes_on(repository: Path) -> None:
    """SIGKILL at random times, until it is decided: the same decision and trials."""

    def run(action: str, *words: str, seconds: float | None = None) -> str:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ablate", "chain", action, "ours"),
                *(*words, "--with", "mine.py", "--format", "json"),
            ],
            cwd=repository,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        if seconds is not None:
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        return process.communicate()[0]

    propose = ("propose", "better", "--executor", "inline")
    run("begin", "main", "--epochs", "1")
    generator = random.Random(0)
    for _ in range(8):
        run(*propose, seconds=generator.uniform(0.3, 2.5))
    killed = json.loads(run(*propose))
    os.rename(repository / "runs", repository.parent / "killed")
    run("begin", "main", "--epochs", "1")
    whole = json.loads(run(*propose))
    same = ("decision", "evidence", "seeds", "difference", "needed")
    assert {name: killed[name] for name in same} == {name: whole[name] for name in same}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["worktree"], "a proposal is a commit"),
        (["my.patch"], "a proposal is a commit"),
        (["nothing"], "no branch, tag or commit nothing"),
        (["main", "--metric", "loss"], "unknown metric 'loss'"),
        (["main", "--trainer", "other"], "unknown trainer 'other'"),
        (["main", "--set", "x=1"], "unknown factor 'x'"),
        (["main", "--direction", "max"], "it is that of the metric"),
        (["space.yaml", "--direction", "max"], "it is that of the metric"),
        (["depth=4"], "no branch, tag or commit depth=4"),
        (["main", "--reported", "0=1"], "needs --direction"),
        (
            ["a", "--reported", "0=1", "--direction", "max", "--epochs", "2"],
            "no effect",
        ),
        (["a", "--reported", "0:1", "--direction", "max"], "write SEED=RESULT"),
        (["a", "--reported", "0=inf", "--direction", "max"], "finite numbers by seed"),
        (
            ["a", "--reported", "-1=2", "--direction", "max"],
            "seeds whole numbers from 0",
        ),
        (
            ["a", "--reported", "1=2", "--reported", "1=2", "--direction", "max"],
            "there twice",
        ),
    ],
)
def test_bad_input_makes_no_chain(
    repository: Path, ours: Ours, words: list[str], message: str
) -> None:
    done = ours("begin", *words)
    assert done.code == 2
    assert message in done.err
    assert not (repository / "runs").exists()


@pytest.mark.parametrize("name", ["a/b", "", "a b", "..\n", "x" * 101])
def test_a_chain_has_a_plain_name(command: Command, name: str) -> None:
    done = command("chain", "begin", name, "main")
    assert done.code == 2


@pytest.mark.proof
def test_a_chain_begins_once(ours: Ours) -> None:
    ours("begin", "main", "--epochs", "1")
    done = ours("begin", "better")
    assert done.code == 2
    assert "the chain ours exists; propose to it" in done.err


@pytest.mark.parametrize("action", ["propose", "confirm"])
def test_a_chain_chooses_rows_and_seeds(ours: Ours, action: str) -> None:
    words = ("better",) if action == "propose" else ()
    for option in ("--seed", "--row"):
        done = ours(action, *words, option, "1")
        assert done.code == 2
        assert "chooses rows and seeds itself" in done.err


@pytest.mark.parametrize(
    "words", [("propose", "x", "better"), ("withdraw", "x"), ("list", "x")]
)
def test_an_unknown_chain_is_named(
    command: Command,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    command("chain", "begin", "ours", "a", "--reported", "0=1", "--direction", "max")
    done = command("chain", *words)
    assert done.code == 2
    assert "unknown chain 'x'" in done.err


# Reported results.


def reported(tmp_path: Path) -> ablate.Chain:
    chain = ablate.open_chain("ours", runs=tmp_path)
    chain.begin_reported("first", {0: 1.0}, direction="min")
    return chain


def test_reported_results_are_decided_by_the_same_rule(tmp_path: Path) -> None:
    chain = reported(tmp_path)
    open_ = chain.report("second", {0: 0.5})
    assert open_.proposal.decision is Decision.MORE_SEEDS
    assert open_.next == "report seed 1 of first and of second"
    assert open_.difference == -0.5
    with pytest.raises(AblateError, match="the baseline first has no result of seed 1"):
        chain.report("second", {1: 0.5})
    chain.report("first", {seed: 1.0 + seed / 100 for seed in range(1, 20)})
    for seed in range(1, 20):
        last = chain.report("second", {seed: 0.5 + (seed % 3) / 100})
        if last.proposal.decision is not Decision.MORE_SEEDS:
            break
    assert last.proposal.decision is Decision.KEEP
    assert last.baseline == "second"
    assert chain.report("second", {}).proposal.decision is Decision.KEEP
    missing = "the baseline second has no result of seed 19"
    with pytest.raises(AblateError, match=missing):
        chain.report("third", {19: 0.4})


def test_all_seeds_at_once_are_decided_as_one_after_another(tmp_path: Path) -> None:
    base = {seed: 1.0 + seed / 100 for seed in range(20)}
    mine = {seed: 0.5 + (seed % 3) / 100 for seed in range(20)}
    chain = ablate.open_chain("ours", runs=tmp_path)
    chain.begin_reported("first", base, direction="min")
    whole = chain.report("second", mine)
    assert whole.proposal.decision is Decision.KEEP
    other = ablate.open_chain("other", runs=tmp_path)
    other.begin_reported("first", base, direction="min")
    for seed, result in mine.items():
        last = other.report("second", {seed: result})
        if last.proposal.decision is Decision.KEEP:
            break
    assert last.proposal.evidence == whole.proposal.evidence
    with Reader(chain.options.url) as reader:
        assert reader.chains.names() == ["other", "ours"]


def test_a_race_between_two_processes_loses_no_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = reported(tmp_path)
    real = chain_module.add_proposal
    monkeypatch.setattr(chain_module, "add_proposal", None)

    def add(url: str, proposal: Proposal, declared: object = None) -> None:
        # Another process comes between reading and writing.
        monkeypatch.setattr(chain_module, "add_proposal", real)
        ablate.open_chain("ours", runs=tmp_path).report("other", {0: 0.9})
        real(url, proposal)

    monkeypatch.setattr(chain_module, "add_proposal", add)
    with pytest.raises(AblateError, match="another process has proposed"):
        chain.report("mine", {0: 0.5})
    assert [each.name for each in chain.proposals()] == ["first", "other"]


def test_the_next_seed_is_one_that_the_baseline_has(tmp_path: Path) -> None:
    chain = ablate.open_chain("ours", runs=tmp_path)
    base = {10: 3.0, 12: 3.1, 11: 3.2}
    chain.begin_reported("first", base, direction="max")
    assert chain.report("second", {11: 3.3}).next == "report seed 10 of second"
    last = chain.report("second", {12: 3.2, 10: 3.1})
    assert last.next == "report seed 13 of first and of second"
    assert list(last.proposal.results) == [11, 10, 12]


@pytest.mark.parametrize(
    "results",
    [{0: math.inf}, {-1: 1.0}, {0.5: 1.0}, {"0": 1.0}, {0: "x"}, {0: [1.0]}],
)
def test_wrong_results_store_nothing(tmp_path: Path, results: Any) -> None:
    chain = ablate.open_chain("ours", runs=tmp_path)
    with pytest.raises(AblateError, match="finite numbers by seed"):
        chain.begin_reported("first", results, direction="max")
    assert not chain.proposals()
    chain = reported(tmp_path)
    with pytest.raises(AblateError, match="finite numbers by seed"):
        chain.report("second", results)
    assert len(chain.proposals()) == 1


@pytest.mark.parametrize(
    "options",
    [{"direction": "maximum"}, {"direction": "max", "most": 0}, {"most": 1.5}],
)
def test_a_wrong_declaration_stores_nothing(tmp_path: Path, options: Any) -> None:
    chain = ablate.open_chain("ours", runs=tmp_path)
    with pytest.raises(AblateError):
        chain.begin_reported("first", {0: 1.0}, **{"direction": "min", **options})
    with pytest.raises(AblateError, match="a name is one line"):
        chain.begin_reported(" ", {0: 1.0}, direction="min")
    assert not chain.proposals()


def test_an_unknown_chain_has_no_baseline(tmp_path: Path) -> None:
    reported(tmp_path)
    with pytest.raises(UnknownName, match="unknown chain 'other'"):
        ablate.open_chain("other", runs=tmp_path).baseline()


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    chain = reported(tmp_path)
    lost = chain.report("second", {np.int64(0): np.float32("nan")})
    assert lost.proposal.results == {0: None}
    assert chain.proposals()[1].decision is Decision.DISCARD


@pytest.mark.parametrize("name", ["ü/ñ", "a\\\\b", "٣"])
def test_json_has_any_name(command: Command, tmp_path: Path, name: str) -> None:
    words = ("z", name, "--runs", str(tmp_path), "--format", "json")
    first = ("--reported", "3=1.4", "--direction", "max")
    command("chain", "begin", *words, *first)
    done = command("chain", "propose", *words, "--reported", "4=1.4")
    assert json.loads(done.out)["proposal"] == name


def test_what_has_no_effect_is_refused_before_anything_is_done(
    command: Command, tmp_path: Path
) -> None:
    chain = reported(tmp_path)
    chain.report("second", {0: 0.9})
    runs = ("--runs", str(tmp_path))
    for more, message in (
        (("withdraw", "ours", "--format", "csv"), "'csv' is not one of"),
        (("withdraw", "ours", "--max-trials", "3"), "No such option: --max-trials"),
        (
            ("propose", "ours", "x", "--reported", "0=3", "--gpus", "1"),
            "trains nothing",
        ),
    ):
        done = command("chain", *more, *runs)
        assert done.code == 2
        assert message in done.err
    assert chain.proposals()[1].decision is Decision.MORE_SEEDS
    listed = command("chain", "list", "ours", *runs, "--format", "csv")
    assert listed.out.startswith("number,")


@pytest.mark.proof
def test_a_changed_declaration_is_refused(repository: Path, ours: Ours) -> None:
    ours("begin", "main", "--epochs", "1")
    changes = {
        '"max"': '"min"',
        '{"accuracy"': '{"other": "min", "accuracy"',
        "--seed": "--fast --seed",
    }
    for old, new in changes.items():
        write(repository, {"mine.py": DECLARATION.replace(old, new)})
        for words in (["propose", "better"], ["confirm"]):
            done = ours(*words)
            assert done.code == 2, done.out
    assert "has changed since the chain ours was made" in ours("propose", "better").err
    write(repository, {"mine.py": DECLARATION.replace("train =", "other =")})
    assert (
        "name the file that declares it: --with FILE" in ours("propose", "better").err
    )
    assert len(ablate.open_chain("ours").proposals()) == 1
    write(repository, {"mine.py": f"# Ours.\n{DECLARATION}"})
    assert ours("propose", "better", "--max-trials", "2").code == MORE


def test_a_baseline_of_another_repository_is_named(
    repository: Path, tmp_path: Path, ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(repository, {"here.txt": "a file that the other one does not have"})
    commit(repository, "here")
    ours("begin", "main", "--epochs", "1")
    monkeypatch.chdir(make_repository(tmp_path / "other"))
    runs = str(repository / "runs")
    done = ours("propose", "better", "--runs", runs)
    assert done.code == 2
    assert "cannot be trained here" in done.err
    assert "fetch the commit" in done.err
    assert len(ablate.open_chain("ours", runs=runs).proposals()) == 1


@pytest.mark.proof
def test_a_baseline_that_fails_leaves_the_proposal_open(
    repository: Path, ours: Ours
) -> None:
    write(repository, {"train.py": SCRIPT.replace("noise =", "open('here')\nnoise =")})
    commit(repository, "needs a file")
    branch(repository, "next", {"model.py": MODEL.replace("1.0", "2.0")})
    ours("begin", "main", "--epochs", "1")
    done = ours("propose", "next")
    assert done.code == 2
    assert "a training of the baseline main failed" in done.err
    assert ablate.open_chain("ours").proposals()[1].decision is Decision.MORE_SEEDS


@pytest.mark.proof
def test_a_confirmation_has_one_number_of_seeds(ours: Ours) -> None:
    ours("begin", "main", "--epochs", "1")
    ours("propose", "better")
    first = ours("confirm", "--seeds", "3")
    assert "better" in str(answer(first)["text"])
    assert answer(ours("confirm", "--seeds", "3")) == answer(first)
    other = ours("confirm", "--seeds", "2")
    assert other.code == 2
    assert "is confirmed with 3 seeds" in other.err


@pytest.mark.proof
def test_a_chain_is_kept_on_a_server(tmp_path: Path) -> None:
    base = {seed: 1.0 + seed / 100 for seed in range(19, -1, -1)}
    with postgres() as url:
        chain = ablate.open_chain("ours", runs=tmp_path, store=url)
        chain.begin_reported("first", base, direction="min")
        mine = {seed: result - 0.5 for seed, result in base.items()}
        kept = chain.report("second", {**mine, 3: mine[3] + 0.01})
        assert kept.proposal.decision is Decision.KEEP
        # Seeds of one report are looked at in their order.
        assert list(chain.proposals()[0].results) == sorted(base)


def test_a_result_does_not_change(tmp_path: Path) -> None:
    chain = reported(tmp_path)
    chain.report("second", {0: 0.5})
    assert chain.report("second", {0: 0.5}).proposal.results == {0: 0.5}
    with pytest.raises(AblateError, match="a result does not change"):
        chain.report("second", {0: 0.4})
    with pytest.raises(AblateError, match="a result does not change"):
        chain.report("first", {0: 0.4})


def test_a_reported_run_may_have_diverged(tmp_path: Path) -> None:
    chain = reported(tmp_path)
    lost = chain.report("second", {0: None})
    assert lost.proposal.decision is Decision.DISCARD
    assert lost.difference is None
    assert json.loads(json.dumps(lost.to_dict()))["decision"] == "discard"


def test_a_result_does_not_change_after_its_proposal_was_withdrawn(
    tmp_path: Path,
) -> None:
    chain = reported(tmp_path)
    chain.report("second", {0: 1.5})
    chain.withdraw()
    with pytest.raises(AblateError, match="a result does not change"):
        chain.report("second", {0: 1.6})
    assert chain.report("second", {0: 1.5}).proposal.number == 2


def test_seeds_without_any_spread_are_no_evidence(tmp_path: Path) -> None:
    chain = ablate.open_chain("same", runs=tmp_path)
    chain.begin_reported("first", dict.fromkeys(range(12), 3.31), direction="min")
    answer = chain.report("second", dict.fromkeys(range(12), 3.28))
    assert answer.proposal.decision is Decision.DISCARD
    assert "seems to ignore its seed" in answer.proposal.reason


def test_reported_and_trained_chains_do_not_mix(tmp_path: Path) -> None:
    chain = reported(tmp_path)
    with pytest.raises(AblateError, match="are reported; report those of"):
        chain.propose("main")
    with pytest.raises(AblateError, match="there is nothing to confirm"):
        chain.confirm(3)
    with pytest.raises(AblateError, match="exists"):
        chain.begin_reported("again", {}, direction="max")
    with pytest.raises(AblateError, match="has no open proposal"):
        chain.withdraw()
    with pytest.raises(UnknownName, match="did you mean 'ours'"):
        ablate.open_chain("our", runs=tmp_path).declared()


def test_a_decision_cannot_be_overwritten(tmp_path: Path) -> None:
    chain = reported(tmp_path)
    chain.report("second", {0: None})
    decided = chain.proposals()[1]
    with pytest.raises(AblateError, match="another process has proposed"):
        update_proposal(chain.options.url, replace(decided, decision=Decision.KEEP))
    assert chain.proposals()[1].decision is Decision.DISCARD


# The tool of agents.


def tools_of(folder: Path, trials: int) -> Tools:
    return Tools(
        runs=folder / "agents",
        url=str(folder / "agents" / "ablate.db"),
        limits=Budget(trials=trials),
        how=("--executor", "inline", "--with", "mine.py"),
    )


@pytest.mark.proof
def test_an_agent_proposes_commits_within_its_budget(repository: Path) -> None:
    registry.load_all(["mine.py"])
    tools = tools_of(repository, trials=10)
    first = tools.chain("ours", "main")
    assert first.decision == "baseline"
    answer = tools.chain("ours", "better", seconds=0)
    while answer.decision == "more seeds" and answer.trials < 10:
        answer = tools.chain("ours", "better", seconds=5)
    assert answer.seeds == 5
    used = tools.chain("ours", "better")
    assert (used.decision, used.trials) == ("more seeds", 10)
    assert "if a limit is used up, raise it" in used.next
    larger = tools_of(repository, trials=100)
    answer = larger.chain("ours", "better", seconds=60)
    assert answer.decision == "keep"
    with pytest.raises(Exception, match="no branch, tag or commit nothing"):
        larger.chain("ours", "nothing")
    larger.close()


def test_an_agent_reports_its_own_results(tmp_path: Path) -> None:
    tools = tools_of(tmp_path, trials=1)
    with pytest.raises(Exception, match="needs direction"):
        tools.chain("ours", "first", {0: 1.0})
    first = tools.chain("ours", "first", {0: 1.0, 1: 1.1}, "min")
    assert (first.decision, first.number) == ("baseline", 0)
    better = tools.chain("ours", "second", {0: 0.9, 1: 1.0})
    assert better.decision == "more seeds"
    assert better.next == "report seed 2 of first and of second"
    with pytest.raises(Exception, match="direction goes with results"):
        tools.chain("ours", "second", None, "min")


def test_the_answer_has_the_published_schema(tmp_path: Path) -> None:
    answer = reported(tmp_path).report("second", {0: None}).to_dict()
    schema = TypeAdapter(ANSWERS["chain"]).json_schema()
    jsonschema.validate(json.loads(json.dumps(answer)), schema)
    assert set(answer) == set(schema["properties"])


@pytest.fixture(autouse=True)
def _clean() -> object:
    yield
    registry.clear()
