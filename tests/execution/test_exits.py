"""Code of a trial that calls `sys.exit` ends that trial, and not the run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from ablate.execution.inline import InlineExecutor
from ablate.pipeline import Options
from ablate.store.reader import Reader
from ablate.training import Training
from tests.conftest import RunText


@pytest.mark.parametrize("place", ["_prepare", "epoch", "diagnose"])
def test_a_trial_that_exits_has_failed_and_the_others_go_on(
    place: str,
    run_text: RunText,
    tiny: str,
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real: Callable[..., Any] = getattr(Training, place)
    calls: list[Training] = []

    def exits_once(training: Training, *arguments: Any) -> Any:
        calls.append(training)
        if len(calls) == 1:
            sys.exit("the loader of my data gave up")
        return real(training, *arguments)

    monkeypatch.setattr(Training, place, exits_once)
    outcome = run_text(tiny + "diagnostics: [token_cosine]\n", InlineExecutor())
    assert outcome.trials == 8
    assert outcome.failed == (place != "diagnose")
    assert not outcome.interrupted
    with Reader(options.url) as reader:
        errors = [trial.error for trial in reader.trials.of("tiny") if trial.error]
    assert errors == ["SystemExit: the loader of my data gave up"]
