"""`ablate run --row --seed`: some trials of a plan, and the rest later."""

from __future__ import annotations

import pytest

import ablate
from ablate.errors import AblateError
from tests.conftest import Say

SPACE = """
question: q?
backbone: {family: vit, patch_size: 4, width: 8, depth: 1, heads: 2}
factors: {shortcuts.count: [0, 1], shortcuts.b: [1, 2]}
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 1, batch_size: 10, warmup_epochs: 0}
seeds: 2
"""


@pytest.fixture
def run(say: Say, monkeypatch: pytest.MonkeyPatch):
    with open("mine.yaml", "w") as stream:
        stream.write(SPACE)

    def run(verb: str, *words: str) -> tuple[int, str, str]:
        name = "mine.yaml" if verb == "run" else "mine"
        return say(verb, name, "--executor", "inline", *words)

    return run


def statuses(say: Say) -> dict[tuple[int, int], str]:
    import json

    rows = json.loads(say("status", "mine", "--format", "json")[1])
    return {(row["row"], row["seed"]): row["status"] for row in rows}


@pytest.mark.proof
def test_some_trials_and_then_the_rest(run, say: Say) -> None:
    code, _, told = run("run", "--row", "2", "--seed", "1")
    assert code == 0
    assert "0 known, 1 to train, 5 left out" in told
    assert "1 trials trained, 0 known before. 5 other trials are left for:" in told
    assert "ablate resume mine" in told
    done = statuses(say)
    assert done.pop((2, 1)) == "completed"
    assert set(done.values()) == {"planned"}
    # A resume may choose, too. What is done is not trained again.
    code, _, told = run("resume", "--seed", "1", "--row", "0", "--row", "2")
    assert code == 0
    assert "1 known, 1 to train, 4 left out" in told
    # Row 1 trains the same as row 0: b is not read without shortcuts.
    code, _, told = run("run", "--row", "1")
    assert code == 0
    assert "1 to train" in told
    code, _, told = run("resume")
    assert code == 0
    assert "3 trials trained, 3 known before. " in told
    assert set(statuses(say).values()) == {"completed"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--row", "4"), "--row 4: the plan has the rows 0 to 3"),
        (("--seed", "2"), "--seed 2: the seeds of the plan are 0, 1"),
        (("--row", "1", "--until-decided", "6"), "--row and --seed are for a plan"),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    run, say: Say, words: tuple[str, ...], message: str
) -> None:
    code, _, told = run("run", *words)
    assert code == 2
    assert message in told
    assert say("status")[0] == 2, "nothing was stored"


@pytest.mark.proof
def test_python_chooses_rows_and_seeds(say: Say) -> None:
    with open("mine.yaml", "w") as stream:
        stream.write(SPACE)
    study = ablate.run("mine.yaml", executor="inline", rows=[0], seeds=[1])
    results, _ = study.read()
    assert [len(cell.values) for cell in results.cells] == [1, 0, 0, 0]
    with pytest.raises(AblateError, match="row 7: the plan has the rows 0 to 3"):
        ablate.run("mine.yaml", executor="inline", rows=[7])
