"""Chains on a space: a proposal changes levels of the present baseline."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import ablate
from ablate.budget import Budget
from ablate.cli.agent_tools import Tools
from ablate.errors import AblateError
from ablate.own import registry
from ablate.records import Decision
from ablate.store.reader import Reader
from ablate.trained.chain import Chain
from tests.conftest import Say

# `rms` is 2 better and `gelu` 3 better, with a noise of 0.5; `depth` changes nothing but
# the noise; depth 9 cannot be trained.
MINE = """
import random

import ablate


@ablate.trainer(
    factors={
        "norm": ["layer", "rms"],
        "act": ["relu", "gelu"],
        "depth": ablate.Whole(1, 9),
    },
    metrics={"accuracy": "max"},
)
def mine(trial):
    levels = trial.levels
    if levels["depth"] == 9:
        raise ValueError("too deep")
    gain = 2 * (levels["norm"] == "rms") + 3 * (levels["act"] == "gelu")
    draw = random.Random(f"{trial.seed} {sorted(levels.items())}")
    for _ in trial.epochs():
        trial.report(accuracy=70 + gain + draw.gauss(0, 0.5))
"""
SPACE = """
question: What earns its cost?
trainer: mine
factors: {norm: [layer, rms], act: [relu, gelu]}
fixed: {depth: 2}
seeds: 3
recipe: {epochs: 1}
"""


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    Path("space.yaml").write_text(SPACE)
    registry.load_file(Path("mine.py"))
    return ablate.open_chain("ours", executor="inline")


def names(chain: Chain) -> list[tuple[str, str]]:
    return [(each.name, str(each.decision)) for each in chain.proposals()]


def levels(chain: Chain) -> object:
    return json.loads(chain.baseline().source)


@pytest.mark.proof
def test_kept_levels_add_up(chain: Chain) -> None:
    first = chain.begin_space("space.yaml")
    assert first.proposal.decision is Decision.BASELINE
    assert levels(chain) == {"norm": "layer", "act": "relu", "depth": 2}
    assert chain.propose("norm=rms").proposal.decision is Decision.KEEP
    answer = chain.propose("depth=3")
    assert answer.proposal.decision is Decision.DISCARD
    assert answer.next == "propose another change of norm=rms"
    answer = chain.propose("act=gelu")
    assert answer.proposal.decision is Decision.KEEP
    assert answer.difference == pytest.approx(3.0, abs=0.6)
    assert levels(chain) == {"norm": "rms", "act": "gelu", "depth": 2}
    assert names(chain) == [
        ("space.yaml", "baseline"),
        ("norm=rms", "keep"),
        ("depth=3", "discard"),
        ("act=gelu", "keep"),
    ]
    words, verdict = chain.confirm(4)
    assert verdict == "helps"
    assert "act = gelu, norm = rms" in words


@pytest.mark.proof
def test_what_was_decided_stays_decided(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    answer = chain.propose("depth=3")
    trials = answer.trials
    again = chain.propose(" depth = 3 ,norm=layer")
    assert again.proposal.decision is answer.proposal.decision
    assert (again.trials, again.proposal.number) == (trials, 1)
    for same in ("norm=layer", "depth=2,act=relu"):
        answer = chain.propose(same)
        assert answer.proposal.decision is Decision.DISCARD
        assert answer.proposal.reason == "it trains the same as the baseline space.yaml"
    assert len(chain.proposals()) == 2


def test_the_file_may_be_named_again(say: Say) -> None:
    Path("tiny.yaml").write_text(TINY)
    for _ in range(2):
        code, out, err = say("chain", "begin", "ours", "tiny.yaml")
        assert code == 0, err
        assert "tiny.yaml is the first baseline" in out
    Path("tiny.yaml").write_text(TINY.replace("epochs: 1", "epochs: 2"))
    code, _, err = say("chain", "begin", "ours", "tiny.yaml")
    assert code == 2
    assert "not the space that it began with" in err


@pytest.mark.proof
def test_a_way_back_is_another_proposal(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    assert chain.propose("norm=rms").proposal.decision is Decision.KEEP
    assert chain.propose("norm=layer").proposal.decision is Decision.DISCARD
    assert names(chain)[2] == ("norm=layer", "discard")


@pytest.mark.proof
def test_a_limit_leaves_the_proposal_open(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    limited = ablate.open_chain("ours", executor="inline", max_trials=4)
    answer = limited.propose("norm=rms")
    assert answer.proposal.decision is Decision.MORE_SEEDS
    assert answer.trials == 4
    with pytest.raises(AblateError, match="open proposal norm=rms"):
        chain.propose("act=gelu")
    assert chain.propose("norm=rms").proposal.decision is Decision.KEEP
    # Each trial was trained once.
    with Reader(chain.options.url) as reader:
        trials = reader.trials.of("chain/ours/1")
    assert {trial.attempts for trial in trials if trial.attempts} == {1}


def test_levels_that_fail_are_discarded(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    answer = chain.propose("depth=9")
    assert answer.proposal.decision is Decision.DISCARD
    assert "failed" in answer.proposal.reason


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("norm", "norm: write a name and its level"),
        ("norm=", "a level is a number, a word"),
        ("norm=[a]", "a level is a number, a word"),
        ("norm=rms,norm=layer", "norm has two levels"),
        ("norm=batch", "'batch' is not a level; allowed: layer, rms"),
        ("width=3", "unknown factor 'width'"),
        ("depth=100", "100 is not a level"),
        ("=rms", "write a name"),
    ],
)
def test_bad_levels_cost_nothing(chain: Chain, change: str, error: str) -> None:
    chain.begin_space("space.yaml")
    with pytest.raises(AblateError, match=error) as caught:
        chain.propose(change)
    assert "chain/" not in str(caught.value)
    assert len(chain.proposals()) == 1


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("tune: {lr: [0.1, 0.2]}", "tune"),
        ("scheduler: asha", "leave scheduler out"),
        ("across: {depth: [1, 2, 3]}\nmargin: 1", "leave across out"),
    ],
)
def test_a_space_that_two_rows_cannot_have(chain: Chain, more: str, error: str) -> None:
    text = SPACE.replace("fixed: {depth: 2}\n", "") if "across" in more else SPACE
    Path("space.yaml").write_text(text + more + "\n")
    with pytest.raises(AblateError, match=error):
        chain.begin_space("space.yaml")
    assert not chain.proposals()


def test_a_changed_part_is_refused(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    Path("mine.py").write_text(MINE.replace("70 + gain", "71 + gain"))
    registry.load_file(Path("mine.py"))
    with pytest.raises(AblateError, match="has changed since"):
        chain.propose("norm=rms")
    assert len(chain.proposals()) == 1


@pytest.mark.proof
def test_excluded_levels_are_not_proposed(chain: Chain) -> None:
    Path("space.yaml").write_text(SPACE + "exclude: [{norm: rms, act: gelu}]\n")
    chain.begin_space("space.yaml")
    with pytest.raises(AblateError, match="excludes norm=rms,act=gelu"):
        chain.propose("norm=rms,act=gelu")


TINY = """
name: tiny
question: What earns its cost?
backbone: {family: vit, patch_size: 4, width: 8, depth: 1, heads: 1}
factors: {shortcuts.count: [0, 1], recipe.lr: [1e-3, 1e-2]}
fixed: {drop.path: 0.0}
design: one-at-a-time
seeds: {count: 3, vary: [init]}
data: {name: digits, train_images: 20, test_images: 10}
recipe: {epochs: 1, batch_size: 10, warmup_epochs: 0}
"""


def test_built_in_training_has_chains_too(say: Say) -> None:
    Path("tiny.yaml").write_text(TINY + "limits: {params: '<= 20e3'}\n")
    code, out, err = say("chain", "begin", "ours", "tiny.yaml", "--format", "json")
    assert code == 0, err
    assert json.loads(out)["decision"] == "baseline"
    words = ("--executor", "inline", "--format", "json", "--max-trials", "2")
    code, out, err = say("chain", "propose", "ours", "size.width=16", *words)
    assert code in (4, 5), err
    assert json.loads(out)["seeds"] == 1
    with Reader("sqlite:///runs/ablate.db") as reader:
        study = reader.studies.get("chain/ours/1")
        declared = study.space
        results = reader.studies.results("chain/ours/1")
    assert declared is not None
    assert declared.seeds.vary == ("init",)
    assert [dict(cell.levels)["size.width"] for cell in results.cells] == [8, 16]
    assert declared.recipe.epochs == 1
    say("chain", "withdraw", "ours")
    for change, error in (
        ("size.width=64", "cannot be trained: .*params"),
        ("shortcuts.count=1,shortcuts.count=0", "two levels"),
        ("recipe.lr=fast", "number"),
    ):
        code, _, err = say("chain", "propose", "ours", change, "--executor", "inline")
        assert code == 2
        assert re.search(error, err), (change, err)


def test_a_limit_that_moves_with_the_baseline_is_refused(say: Say) -> None:
    Path("tiny.yaml").write_text(TINY + "limits: {flops: '<= 1.2 * baseline'}\n")
    code, _, err = say("chain", "begin", "ours", "tiny.yaml")
    assert code == 2
    assert "write a number in the place of baseline" in err
    assert not Path("runs").exists()


@pytest.mark.parametrize("option", ["--epochs 3", "--set a=1", "--metric top5"])
def test_options_of_commits_are_refused(say: Say, option: str) -> None:
    Path("tiny.yaml").write_text(TINY)
    code, _, err = say("chain", "begin", "ours", "tiny.yaml", *option.split())
    assert code == 2
    assert "write it in tiny.yaml" in err


def test_results_of_a_chain_on_a_space_are_not_reported(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    with pytest.raises(AblateError, match="trains its proposals"):
        chain.report("norm=rms", {0: 1.0})


def test_the_space_may_be_a_mapping(chain: Chain) -> None:
    answer = chain.begin_space(
        {
            "name": "mapped",
            "question": "What earns its cost?",
            "trainer": "mine",
            "factors": {"norm": ["layer", "rms"]},
            "fixed": {"depth": 2},
        }
    )
    assert answer.proposal.name == "mapped"


@pytest.mark.proof
def test_an_agent_proposes_levels_within_its_budget(chain: Chain) -> None:
    tools = Tools(
        runs=Path("agents"),
        url="agents/ablate.db",
        limits=Budget(trials=8),
        how=("--executor", "inline", "--with", "mine.py"),
    )
    first = tools.chain("ours", "start", space=SPACE)
    assert first.decision == "baseline"
    answer = tools.chain("ours", "norm=rms", seconds=60)
    assert (answer.decision, answer.trials) == ("more seeds", 8)
    with pytest.raises(Exception, match="without results"):
        tools.chain("ours", "start", {0: 1.0}, space=SPACE)
    assert tools.chain("ours", "start", space=SPACE).decision == "baseline"
    with pytest.raises(Exception, match="began with"):
        tools.chain("ours", "start", space=SPACE.replace("{depth: 2}", "{depth: 3}"))
    tools.close()


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        # The recipe of the file has it, its preset has it, or it has the default.
        ("recipe.batch_size=5", 10, 5),
        ("recipe.weight_decay=0.3", 0.05, 0.3),
        ("data.image_size=16", 8, 16),
        ("size.heads=2", 1, 2),
        ("ffn.kernel=3", "none", 3),
    ],
)
def test_the_baseline_keeps_what_the_file_says(
    say: Say, change: str, before: object, after: object
) -> None:
    """A level that the baseline does not name is that of the file, not that proposed."""
    Path("tiny.yaml").write_text(TINY)
    assert say("chain", "begin", "ours", "tiny.yaml")[0] == 0
    words = ("--executor", "inline", "--max-trials", "2")
    code, _, err = say("chain", "propose", "ours", change, *words)
    assert code in (4, 5), err
    with Reader("sqlite:///runs/ablate.db") as reader:
        results = reader.studies.results("chain/ours/1")
    name = change.partition("=")[0]
    assert [dict(cell.levels).get(name) for cell in results.cells] == [before, after]
    assert [cell.same_as for cell in results.cells] == [None, None]


@pytest.mark.parametrize("change", ["pretrained=true", "recipe.milestones=3"])
def test_what_the_space_has_no_level_of_is_refused(say: Say, change: str) -> None:
    Path("tiny.yaml").write_text(TINY)
    say("chain", "begin", "ours", "tiny.yaml")
    code, _, err = say("chain", "propose", "ours", change, "--executor", "inline")
    assert code == 2
    assert "Traceback" not in err


@pytest.mark.proof
def test_a_kept_proposal_stays_kept(chain: Chain) -> None:
    chain.begin_space("space.yaml")
    assert chain.propose("norm=rms").proposal.decision is Decision.KEEP
    again = chain.propose("norm=rms")
    assert again.proposal.decision is Decision.KEEP
    assert again.proposal.number == 1


@pytest.mark.parametrize("change", ["width=1", "width=1.0", "norm=layer,width=1"])
def test_a_level_is_equal_in_every_way_of_writing(chain: Chain, change: str) -> None:
    Path("mine.py").write_text(
        MINE.replace('"depth"', '"width": ablate.Real(0.5, 2.0),\n        "depth"', 1)
    )
    Path("space.yaml").write_text(SPACE.replace("depth: 2", "depth: 2, width: 1.0"))
    registry.load_file(Path("mine.py"))
    chain.begin_space("space.yaml")
    answer = chain.propose(change)
    assert answer.proposal.decision is Decision.DISCARD
    assert "trains the same" in answer.proposal.reason


def test_a_study_of_a_chain_is_not_resumed(chain: Chain, say: Say) -> None:
    Path("mine.py").write_text(MINE)
    Path("space.yaml").write_text(SPACE)
    words = ("--with", "mine.py", "--executor", "inline")
    say("chain", "begin", "ours", "space.yaml", "--with", "mine.py")
    say("chain", "propose", "ours", "depth=3", *words)
    code, _, err = say("resume", "chain/ours/1", *words)
    assert code == 2
    assert "ablate chain propose ours" in err


def test_several_objectives_are_refused(say: Say) -> None:
    Path("tiny.yaml").write_text(
        TINY.replace("design: one-at-a-time", "strategy: {name: random, cells: 3}")
        + "metric: {top1: max, params: min}\n"
    )
    code, _, err = say("chain", "begin", "ours", "tiny.yaml")
    assert code == 2
    assert "one metric" in err


def test_levels_without_a_chain(chain: Chain, say: Say) -> None:
    chain.begin_space("space.yaml")
    Path("mine.py").write_text(MINE)
    code, _, err = say("chain", "propose", "none", "depth=4", "--with", "mine.py")
    assert code == 2
    assert "unknown chain 'none'" in err
