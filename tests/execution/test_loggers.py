"""Live logging: what TensorBoard, MLflow and Weights & Biases hold is what the store
holds, once.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate import execution, pipeline, records, space
from ablate.cli.options import Service
from ablate.errors import ExecutorError
from ablate.execution import Logs
from ablate.execution.loggers import ADAPTERS, Loggers, TensorBoard
from ablate.execution.simulated import made_up
from ablate.records import (
    Ended,
    Measured,
    Measurement,
    Place,
    Progressed,
    Started,
    Status,
    Trial,
)
from ablate.store.reader import Reader
from tests.conftest import Say

PLACE = Place("ray", "here", 1, "cpu", 1)
FACTORS = ("shortcuts.count", "layout")


@pytest.fixture
def trial(tiny: str) -> Trial:
    """A trial with one shortcut, in parallel."""
    return (
        pipeline.cost_plan(space.load(tiny, "tiny.yaml"), "none.db").cells[3].trials[1]
    )


def epochs(trial: Trial, first: int, last: int) -> Progressed:
    return Progressed(
        trial.hash, tuple(made_up(trial, number) for number in range(first, last + 1))
    )


def follow(loggers: Loggers, trial: Trial) -> None:
    loggers.follow(trial)
    loggers.tell(Started(trial.hash, PLACE, 0))


def summaries(folder: Path) -> Iterator[tuple[int, Any]]:
    """All that TensorBoard would show of a folder, with its steps."""
    from tensorboardX.proto import event_pb2

    for file in folder.iterdir():
        content, at = file.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length
            yield from ((event.step, value) for value in event.summary.value)


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    return [(step, value.tag, value.simple_value) for step, value in summaries(folder)]


def lines_of(file: Path) -> Iterator[Any]:
    """The records of a file of an offline run of Weights & Biases: after seven bytes,
    LevelDB's log of blocks of 32 KiB.
    """
    from wandb.proto import wandb_internal_pb2

    content, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        parts += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(parts)
            parts = b""


def test_tensorboard_has_each_epoch_once(tmp_path: Path, trial: Trial) -> None:
    logs = Logs(
        services=("tensorboard",), folder=tmp_path, study="tiny", factors=FACTORS
    )
    for _ in range(2):  # a second process tells again what the first one told
        loggers = Loggers(logs)
        follow(loggers, trial)
        loggers.tell(epochs(trial, 1, 2))
        loggers.tell(Started(trial.hash, PLACE, 2))  # the worker was lost
        loggers.tell(epochs(trial, 1, 3))
        for _ in range(2):
            seen = (
                Measurement(epoch=3, name="token_cosine", layer=0, value=0.25),
                Measurement(
                    epoch=3, name="spectrum", layer=0, value=None, values=(1.0,)
                ),
            )
            loggers.tell(Measured(trial.hash, seen))
        loggers.tell(
            Ended(
                trial.hash,
                Status.COMPLETED,
                tested=records.Tested(
                    epoch=3, metrics={"loss": 1.5, "top1": 50.0, "top5": 90.0}
                ),
            )
        )
        loggers.close()
    (folder,) = (tmp_path / "tensorboard" / "tiny").iterdir()
    assert folder.name == f"shortcuts.count=1,layout=parallel,seed=1,{trial.hash[:8]}"
    found = scalars(folder)
    told = [
        (step, pytest.approx(value)) for step, name, value in found if name == "top1"
    ]
    assert told == [
        (number, made_up(trial, number).metrics["top1"]) for number in (1, 2, 3)
    ]
    assert found.count((3, "token_cosine/layer_0", 0.25)) == 1
    assert (3, "test/top1", 50.0) in found
    # What the page of hyperparameters compares by: all of the last epoch.
    (summary,) = (
        value for _, value in summaries(folder) if value.tag == "_hparams_/experiment"
    )
    assert b"top1" in summary.metadata.plugin_data.content
    assert b"token_cosine" in summary.metadata.plugin_data.content


@pytest.mark.proof
def test_mlflow_has_each_trial_once(
    tmp_path: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    # The last run was broken off: nothing is said of the trial's end.
    for status, told in (
        (Status.RUNNING, "KILLED"),
        (Status.DIVERGED, "FAILED"),
        (None, "KILLED"),
    ):
        loggers = Loggers(
            Logs(services=("mlflow",), folder=tmp_path, study="tiny", factors=FACTORS)
        )
        follow(loggers, trial)
        loggers.tell(epochs(trial, 1, 2))
        if status is not None:
            loggers.tell(Ended(trial.hash, status))
        loggers.close()
        (run,) = client.search_runs(
            [client.get_experiment_by_name("tiny").experiment_id]
        )
        assert run.info.status == told
    assert run.data.params["shortcuts.count"] == "1"
    assert run.data.params["seed"] == "1"
    curve = [
        (one.step, one.value)
        for one in client.get_metric_history(run.info.run_id, "top1")
    ]
    assert curve == [
        (number, made_up(trial, number).metrics["top1"]) for number in (1, 2)
    ]


@pytest.mark.proof
def test_service_that_fails_is_left(
    tmp_path: Path,
    trial: Trial,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import mlflow

    def fail(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", fail)
    loggers = Loggers(
        Logs(
            services=("mlflow", "tensorboard"),
            folder=tmp_path,
            study="tiny",
            factors=FACTORS,
        )
    )
    follow(loggers, trial)
    loggers.tell(epochs(trial, 1, 3))
    loggers.tell(Ended(trial.hash, Status.COMPLETED))
    loggers.close()
    assert (
        capsys.readouterr().err.count(
            "log mlflow stopped: no route to host. Training goes on"
        )
        == 1
    )
    (folder,) = (tmp_path / "tensorboard" / "tiny").iterdir()
    assert [step for step, name, _ in scalars(folder) if name == "loss"] == [1, 2, 3]


@pytest.mark.proof
def test_a_service_that_hangs_keeps_nobody_waiting(
    tmp_path: Path,
    trial: Trial,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("ablate.execution.loggers.CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(TensorBoard, "start", lambda *_: time.sleep(20))
    loggers = Loggers(
        Logs(services=("tensorboard",), folder=tmp_path, study="tiny", factors=FACTORS)
    )
    start = time.monotonic()
    follow(loggers, trial)
    loggers.tell(epochs(trial, 1, 3))
    assert time.monotonic() - start < 10
    loggers.close()
    assert time.monotonic() - start < 18
    assert (
        "log tensorboard has not taken everything; the store has it."
        in capsys.readouterr().err
    )


@pytest.mark.proof
def test_service_that_cannot_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(
        ExecutorError,
        match=r"not logged in .* `wandb login`, or set WANDB_MODE=offline",
    ):
        Loggers(
            Logs(services=("wandb",), folder=tmp_path, study="tiny", factors=FACTORS)
        )
    both = ("mlflow", "wandb")
    with pytest.raises(ExecutorError, match="not logged in"):
        Loggers(Logs(services=both, folder=tmp_path, study="tiny", factors=FACTORS))
    assert not (tmp_path / "mlflow.db").exists(), "what is refused leaves nothing"
    (tmp_path / "file").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/file/mlflow.db")
    with pytest.raises(
        ExecutorError, match="log mlflow: sqlite:.*/file/mlflow.db cannot be used: "
    ):
        Loggers(
            Logs(services=("mlflow",), folder=tmp_path, study="tiny", factors=FACTORS)
        )


def test_wrong_requests(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        [service.value for service in Service]
        == list(execution.SERVICES)
        == list(ADAPTERS)
    )
    code, _, err = say("run", "tiny.yaml", "--log", "tensorbord")
    assert code == 2
    assert "did you mean 'tensorboard'?" in err
    monkeypatch.setattr(execution.logs, "find_spec", lambda name: None)
    code, _, err = say("run", "tiny.yaml", "--log", "wandb")
    assert (code, err) == (
        2,
        (
            "error: --log wandb needs a package that is not installed: pip install"
            " 'ablate-harness[wandb]'\n"
        ),
    )
    assert not Path("runs/tensorboard").exists()


@pytest.mark.proof
@pytest.mark.parametrize(
    "executor", [pytest.param("ray", marks=pytest.mark.ray), "local", "inline"]
)
def test_all_three_beside_real_training(
    executor: str, say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import mlflow

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("tiny.yaml").write_text(
        Path("tiny.yaml").read_text().replace("  layout: [serial, parallel]\n", "")
    )
    services = [word for name in ADAPTERS for word in ("--log", name)]
    code, _, err = say("run", "tiny.yaml", "--executor", executor, *services)
    assert code == 0, err
    assert "View the log with: tensorboard --logdir runs/tensorboard" in err
    with Reader("runs/ablate.db") as reader:
        _, rows = reader.query(
            "SELECT trial, epoch, top1 FROM epoch_results ORDER BY 1, 2"
        )
    stored: dict[str, list[Any]] = {}
    for trial, epoch, top1 in rows:
        stored.setdefault(trial, []).append((epoch, pytest.approx(top1, rel=1e-6)))
    assert [len(curve) for curve in stored.values()] == [3, 3]
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/runs/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    by_trial = {run.data.params["trial"]: run.info.run_id for run in runs}
    assert len(runs) == 2
    for trial, curve in stored.items():
        (folder,) = Path("runs/tensorboard/tiny").glob(f"*,{trial[:8]}")
        assert [
            (step, value) for step, name, value in scalars(folder) if name == "top1"
        ] == curve
        assert [
            (one.step, one.value)
            for one in client.get_metric_history(by_trial[trial], "top1")
        ] == curve
        (file,) = Path("runs/wandb").glob(f"offline-run-*-{trial}/*.wandb")
        told = [one.history.item for one in lines_of(file) if one.HasField("history")]
        history = [
            {item.nested_key[0]: json.loads(item.value_json) for item in items}
            for items in told
        ]
        assert [(line["epoch"], line["top1"]) for line in history] == curve


@pytest.mark.proof
def test_tensorboard_that_failed_says_nothing_more(tmp_path: Path) -> None:
    """Neither a thread nor the end of Python writes to the full disk again."""
    seen = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout == "File too large, 1 thread\n"


# The size of files is limited, as on a disk that is full.
FULL = """
import resource, sys, threading
from pathlib import Path
from ablate.execution.loggers import Run, TensorBoard
from ablate.execution.logs import Logs

run = Run(key="key", name="name", group="", config={})
board = TensorBoard(Logs(("tensorboard",), Path(sys.argv[1]), "tiny", ()))
board.start(run)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    for epoch in range(1, 1000):
        board.log(run, epoch, {"top1": 1.0})
except OSError as error:
    board.close()
    print(f"{error.strerror}, {threading.active_count()} thread")
"""


LOGGED = """
question: q
backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}
factors: {layout: [serial, parallel], recipe.lr: [1e-3, 1e-2]}
data: {name: digits, train_images: 60, test_images: 40, validation: 0.2}
recipe: {epochs: 2, batch_size: 20, warmup_epochs: 0}
diagnostics: [token_cosine]
seeds: 1
"""


def all_scalars(folder: Path) -> dict[str, list[tuple[int, str, float]]]:
    """What TensorBoard shows of each run of a study."""
    return {each.name: sorted(scalars(each)) for each in folder.iterdir()}


@pytest.mark.proof
def test_a_study_that_is_trained_is_logged_as_if_it_had_been_then(
    say: Say, tmp_path: Path
) -> None:
    (tmp_path / "logged.yaml").write_text(LOGGED)
    assert (
        say("run", "logged.yaml", "--executor", "inline", "--log", "tensorboard")[0]
        == 0
    )
    folder = tmp_path / "runs" / "tensorboard" / "logged"
    live = all_scalars(folder)
    assert len(live) == 4
    names = {name for _, name, _ in live[min(live)]}
    assert {"loss", "lr", "seconds", "test/top1", "token_cosine/layer_0"} <= names
    for file in list(folder.rglob("events*")):
        file.unlink()
    code, _, error = say("export", "logged", "--log", "tensorboard", "--log", "mlflow")
    assert code == 0
    assert "View the log with: tensorboard --logdir runs/tensorboard" in error
    assert "logged 4 trials" in error
    again = all_scalars(folder)
    assert [set(live[n]) ^ set(again[n]) for n in live] == [set()] * 4
    assert again == live
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/runs/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'logged'")
    runs = client.search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == sorted(live)
    assert {run.info.status for run in runs} == {"FINISHED"}


@pytest.mark.proof
def test_a_study_may_have_more_trials_than_a_statement_has_places(
    say: Say, tmp_path: Path
) -> None:
    (tmp_path / "logged.yaml").write_text(LOGGED)
    assert say("run", "logged.yaml", "--executor", "inline")[0] == 0
    with Reader("runs/ablate.db") as reader:
        hashes = [trial.trial for trial in reader.trials.of("logged")]
        more = [f"{number:020}" for number in range(300_000)]
        assert set(reader.diagnostics.measurements([*more, *hashes])) == set(hashes)


def test_what_cannot_be_logged(say: Say) -> None:
    assert say("run", "tiny.yaml", "--executor", "simulated")[0] == 2
    code, _, error = say("export", "nothing", "--log", "tensorboard")
    assert code == 2
    assert "View the log" not in error
    code, _, error = say("export", "tiny", "--log", "tensorboard", "--to", "x.csv")
    assert code == 2
    assert "or --log tensorboard" in error
    code, _, error = say("export", "--all", "--log", "tensorboard")
    assert code == 2
