"""What all tests share: a space that is planned in milliseconds and trained in a
second, and a runner for it.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ablate import pipeline, space
from ablate.cli import main
from ablate.execution.simulated import SimulatedExecutor
from ablate.machine import cache
from ablate.own import registry
from ablate.pipeline import Hooks, Options, Outcome
from ablate.records import Event
from ablate.results.study import Study

pytest_plugins = ["tests.cpu_time"]

# A machine that is busy with something else fails no test. A test takes the same
# examples each time, so that a run that fails can be repeated; `make fuzz` takes others.
settings.register_profile(
    "house",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=2000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

# The background job of a shell ignores SIGINT, and so do the processes that it starts.
# Tests of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A cache of its own, which test runs share: what is in it is found by the code that made
# it. A fresh clone has none.
if cache.VARIABLE not in os.environ:
    os.environ[cache.VARIABLE] = str(Path(__file__).parents[1] / ".pytest_cache/ablate")

TINY = """
question: Does a shortcut help a very small ViT?
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2, mlp_ratio: 2}
factors:
  shortcuts.count: [0, 1]
  layout: [serial, parallel]
design: grid
seeds: 2
data: {name: digits, train_images: 200, test_images: 50}
recipe: {epochs: 3, batch_size: 50, lr: 2e-3, warmup_epochs: 0}
"""


@pytest.fixture(autouse=True)
def no_parts() -> Iterator[None]:
    """No test sees the parts of another one, nor does what a session makes once."""
    before = list(sys.path)
    yield
    registry.clear()
    sys.path[:] = before


@pytest.fixture
def tiny() -> str:
    """A YAML document of four cells and two seeds."""
    return TINY


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(runs=tmp_path / "runs", executor="inline", cpus=2)


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def killing(at: int) -> Hooks:
    """Hooks that kill the run at its event of that number."""
    seen = itertools.count(1)

    def event(happened: Event) -> None:
        if next(seen) == at:
            raise Killed

    return Hooks(event=event)


_made: dict[object, tuple[Path, Outcome]] = {}


def made_once(
    key: object,
    runs: Path,
    keep: pytest.TempPathFactory,
    make: Callable[[], Outcome],
) -> Outcome:
    """Runs a study once in a test process; later tests get a copy of its folder.

    Args:
        key: all that the study depends on.
        runs: its folder. A study in a folder that exists is run: it may go on.
    """
    if runs.exists():
        return make()
    if key not in _made:
        outcome = make()
        kept = keep.mktemp("made") / "runs"
        # The name of a lock has the number of its file.
        shutil.copytree(runs, kept, ignore=shutil.ignore_patterns("*.lock*"))
        _made[key] = kept, outcome
        return outcome
    kept, outcome = _made[key]
    shutil.copytree(kept, runs)
    return outcome


RunText = Callable[..., Outcome]


@pytest.fixture
def run_text(options: Options) -> RunText:
    """Runs a YAML text under the name `tiny`, on the simulated executor unless another
    one is given.
    """

    def run(
        text: str, executor: object | None = None, hooks: Hooks | None = None
    ) -> Outcome:
        declared = space.load(text, "tiny.yaml")
        return pipeline.run(
            declared, "tiny.yaml", options, hooks, executor or SimulatedExecutor()
        )

    return run


@pytest.fixture
def table(options: Options) -> Callable[[], str]:
    """The table of the study `tiny`."""
    return lambda: Study("tiny", options.url).table()


Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    tiny: str,
) -> Say:
    """Runs `ablate WORDS` in a folder with tiny.yaml; gives exit code, stdout and
    stderr.
    """
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(tiny.replace("seeds: 2", "seeds: 1"))

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ablate", *words])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run
