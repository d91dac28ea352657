"""A command that takes long says that it is still at work."""

from __future__ import annotations

import time

import pytest

from ablate.cli.busy import busy


def test_a_long_command_says_so_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with busy("counting costs", first=0.05):
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    # After 0.05, 0.15 and 0.35 s.
    assert 1 < len(lines) < 5
    assert set(lines) == {"counting costs: 0 s so far"}


def test_a_short_command_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with busy("counting costs"):
        pass
    assert capsys.readouterr().err == ""


def test_an_error_ends_it() -> None:
    with pytest.raises(ValueError, match="wrong"), busy("counting costs"):
        raise ValueError("wrong")
