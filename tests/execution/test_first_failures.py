"""A run stops if its first trials all fail in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.execution.simulated import SimulatedExecutor, made_up
from ablate.records import Epoch, Trial
from tests.conftest import RunText, Say


def run_with(
    run_text: RunText, text: str, fails: str, begun: list[str] | None = None
) -> tuple[str, int, int]:
    """Trains; `fails` says which trials fail, as an expression of trial and number.

    Args:
        begun: gets the hashes of the trials in the order in which they begin.
    """

    def curve(trial: Trial, number: int) -> Epoch:
        if begun is not None and trial.hash not in begun:
            begun.append(trial.hash)
        if eval(fails, {"trial": trial, "number": number}):
            raise RuntimeError(f"no data at 0x{trial.hash[:8]} for {trial.seed}")
        return made_up(trial, number)

    outcome = run_text(text, SimulatedExecutor(curve))
    return outcome.gave_up, outcome.failed, outcome.trained


def test_equal_failures_before_any_metric_end_the_run(
    run_text: RunText, tiny: str
) -> None:
    tried: list[str] = []
    error, failed, trained = run_with(run_text, tiny, "True", tried)
    assert "no data at" in error
    assert 2 <= failed < 8
    assert trained == 0
    # The next run begins with the others.
    begun: list[str] = []
    assert run_with(run_text, tiny, "False", begun) == ("", 0, 8)
    assert set(begun[-len(tried) :]) == set(tried)


@pytest.mark.parametrize(
    "fails", ["number == 2", "trial.seed == 1 and trial.recipe.lr > 0"]
)
def test_other_failures_do_not_end_the_run(
    run_text: RunText, tiny: str, fails: str
) -> None:
    error, failed, trained = run_with(run_text, tiny, fails)
    assert error == ""
    assert failed + trained == 8


def test_the_command_says_why_and_what_to_type(say: Say, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import ablate\n\n@ablate.trainer(factors={'a': [1, 2]}, metrics={'m': 'max'})\n"
        "def broken(trial):\n    raise FileNotFoundError('no corpus')\n"
    )
    (tmp_path / "s.yaml").write_text(
        "question: Q?\ntrainer: broken\nfactors: {a: [1, 2]}\nseeds: 5\n"
    )
    code, _, errors = say("run", "s.yaml", "--with", "mine.py", "--executor", "inline")
    assert code == 1
    assert (
        "Stopped: the first 2 trials ended in the same error before any metric, so 8"
        " others were not tried: FileNotFoundError: no corpus" in errors
    )
    assert "go on with: ablate resume s --with mine.py --executor inline" in errors
