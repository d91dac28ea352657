"""Seconds from the environment: taken, or refused with what to write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.errors import AblateError
from ablate.machine.environment import seconds


def test_seconds_are_what_is_said_or_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds("ABLATE_X_SECONDS", 20) == 20
    monkeypatch.setenv("ABLATE_X_SECONDS", "0.5")
    assert seconds("ABLATE_X_SECONDS", 20) == 0.5
    monkeypatch.setenv("ABLATE_X_SECONDS", "0")
    assert seconds("ABLATE_X_SECONDS", 20, or_never=True) == 0


@pytest.mark.parametrize("said", ["abc", "0", "-1", "nan", "inf"])
def test_what_is_no_number_of_seconds_is_refused(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_X_SECONDS", said)
    with pytest.raises(
        AblateError,
        match="is not a number of seconds above 0; set it as in ABLATE_X_SECONDS=20",
    ):
        seconds("ABLATE_X_SECONDS", 20)


@pytest.mark.parametrize("name", ["ABLATE_BUSY_SECONDS", "ABLATE_CHECKPOINT_SECONDS"])
def test_the_command_says_so_in_one_message(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, name: "soon"}
    words = [sys.executable, "-m", "ablate", "status", "--runs", str(tmp_path)]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name} = 'soon' is not a number of seconds")
    assert "Traceback" not in done.stderr
