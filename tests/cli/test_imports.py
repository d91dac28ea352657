"""Verbs that only read load only what they use, so they start fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ablate.execution.simulated import SimulatedExecutor
from ablate.machine import cache
from ablate.pipeline import Options
from tests.conftest import RunText

# Runs a verb, then prints the names of the loaded packages and the number of modules.
PROGRAM = """
import sys
from ablate.cli import main
sys.argv = ["ablate", *sys.argv[1:]]
try:
    main()
finally:
    names = sorted({name.partition(".")[0] for name in sys.modules})
    print(*names, len(sys.modules), file=sys.stderr)
"""
TRAINING = {"torch", "torchvision", "timm", "ray", "fvcore", "sklearn", "transformers"}
SEARCH = {"optuna", "cmaes"}
FRAMES = {"pandas", "pyarrow"}
CHARTS = {"matplotlib", "plotly", "streamlit"}
STATISTICS = {"scipy", "numpy", "moocore"}
# No verb of this list trains, searches or draws.
NEVER = TRAINING | SEARCH | FRAMES | CHARTS | {"statsmodels"}

# What a verb must not load, and how many modules it may load, with an empty cache.
BUDGETS = [
    (("status",), NEVER | STATISTICS, 575),
    (("status", "tiny"), NEVER | STATISTICS, 575),
    (("query", "SELECT 1"), NEVER | STATISTICS, 575),
    (("disk",), NEVER | STATISTICS, 640),
    (("table", "tiny"), NEVER | {"moocore"}, 850),
    (("effects", "tiny"), NEVER | {"moocore"}, 850),
    (("effects", "tiny", "--of", "factors"), NEVER | {"moocore"}, 850),
    (("pareto", "tiny"), NEVER, 850),
    (("review", "tiny"), NEVER | {"moocore"}, 850),
    (("plan", "tiny.yaml"), NEVER | {"moocore"}, 960),
    (("factors",), NEVER | STATISTICS, 420),
    (("schema",), NEVER | STATISTICS, 440),
]


@pytest.fixture
def study(
    run_text: RunText,
    tiny: str,
    tmp_path: Path,
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A folder with a study in the file tiny.yaml whose results are stored.

    The cache is empty: otherwise, the tests before would decide what a verb loads.
    """
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    text = tiny.replace("seeds: 2", "seeds: 3")
    run_text(text, SimulatedExecutor())
    (tmp_path / "tiny.yaml").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "unwanted", "most"),
    BUDGETS,
    ids=[" ".join(words) for words, *_ in BUDGETS],
)
def test_a_verb_loads_only_what_it_uses(
    words: tuple[str, ...], unwanted: set[str], most: int, study: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=study,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    *names, number = done.stderr.splitlines()[-1].split()
    assert "ablate" in names
    assert not unwanted.intersection(names)
    assert int(number) <= most
