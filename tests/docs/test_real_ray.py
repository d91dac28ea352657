"""The commands that need a real Ray run in a shell, as the pages print them.

The cluster, the object store and the database are on this machine. The cluster is the one
that the page's own commands start.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import psutil
import pytest
import sqlalchemy
from moto.server import ThreadedMotoServer

from tests.conftest import TINY
from tests.docs.commands import NEED_RAY, PLACEHOLDERS, Command, commands, snippets
from tests.ports import free_port
from tests.store.postgres import postgres

pytestmark = pytest.mark.ray

PAGE = "docs/clusters.md"
BUCKET = "studies"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "reader",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
}
SMALL = TINY.replace("seeds: 2", "seeds: 1")
SHOWN = {
    text: command for text, command in commands("ablate").items() if command.needs_ray
}
# The commands that start a cluster: those of Ray in a block, in the order of the page.
START = [
    command
    for command in commands("ray").values()
    if command.page == PAGE and not command.in_text
]


@dataclass(frozen=True)
class Place:
    """What the words of the commands stand for on this machine.

    Attributes:
        folder: where a reader's files are; the nodes share it.
        names: what each word stands for.
        settings: the environment of the shell.
    """

    folder: Path
    names: dict[str, str]
    settings: dict[str, str]

    def run(self, command: str) -> str:
        """What a command prints."""
        for word, meaning in self.names.items():
            command = command.replace(word, meaning)
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.folder,
            env=self.settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


@pytest.fixture(scope="module")
def machine() -> Iterator[Place]:
    """A home of its own, for tokens and for the files of Ray's processes."""
    # The path of a socket of Ray must be short.
    home = Path(tempfile.mkdtemp(prefix="ablate-ray-"))
    plain = {key: text for key, text in os.environ.items() if key[:4] != "RAY_"}
    settings = {
        "HOME": str(home),
        "RAY_TMPDIR": str(home),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    yield Place(folder=home, names={}, settings={**plain, **settings})
    end_processes_of(home)
    shutil.rmtree(home)


def end_processes_of(home: Path) -> None:
    """`ray stop` would also end every other Ray of this machine."""
    ours = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("RAY_TMPDIR") == str(home):
                ours.append(process)
        except psutil.Error:
            continue
    for process in ours:
        process.kill()
    psutil.wait_procs(ours, timeout=30)


@pytest.fixture(scope="module")
def bucket(machine: Place) -> Iterator[Place]:
    """An object store with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    machine.settings["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
    machine.settings.update(CREDENTIALS)
    with pytest.MonkeyPatch.context() as patch:
        for key, text in CREDENTIALS.items():
            patch.setenv(key, text)
        store = boto3.client("s3", endpoint_url=machine.settings["AWS_ENDPOINT_URL"])
        store.create_bucket(Bucket=BUCKET)
        machine.names["BUCKET"] = BUCKET
        yield machine
    server.stop()


@pytest.fixture(scope="module")
def cluster(bucket: Place) -> Place:
    """A cluster of two nodes with a token, which the page's commands start."""
    token, head, node = START
    bucket.run(token.text)
    port = str(free_port())
    assert "6379" in head.text
    printed = bucket.run(head.text.replace("6379", port))
    address = re.search(r"Local node IP: (\S+)", printed)
    assert address is not None, printed
    bucket.names["10.0.0.1:6379"] = f"{address[1]}:{port}"
    bucket.run(node.text)
    return bucket


@pytest.fixture(scope="module")
def database(machine: Place) -> Iterator[str]:
    with postgres() as url:
        machine.names["postgresql+psycopg://USER@HOST/DB"] = url
        yield url


@pytest.mark.parametrize("text", SHOWN)
def test_it_runs(
    text: str, machine: Place, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    shown = SHOWN[text]
    url = f"sqlite:///{tmp_path}/runs/ablate.db"
    if "s3://" in text:
        request.getfixturevalue("bucket")
    if "--ray-address" in text:
        request.getfixturevalue("cluster")
    if "postgresql" in text:
        url = request.getfixturevalue("database")
    here = Place(
        folder=tmp_path,
        names={**machine.names, "/shared/": f"{tmp_path}/shared/"},
        # A reader has an account; a test has none.
        settings={**machine.settings, "WANDB_MODE": "offline"},
    )
    write_files(shown, tmp_path)
    before(shown, here)
    assert here.run(meant(shown))
    check(shown, here, url)


def write_files(shown: Command, folder: Path) -> None:
    """Writes the space, and those that the page shows, with one epoch."""
    (folder / "mine.yaml").write_text(SMALL)
    for snippet in snippets("yaml"):
        if snippet.page == shown.page and snippet.file:
            text = f"{snippet.text}recipe: {{epochs: 1}}\n"
            (folder / snippet.file).write_text(text)


def before(shown: Command, here: Place) -> None:
    """Leaves what a command goes on with: a study with checkpoints at the same place."""
    verb = shown.words[1]
    run = "ablate run mine.yaml --executor inline"
    if "--checkpoints" in shown.words:
        run += f" --checkpoints {shown.words[shown.words.index('--checkpoints') + 1]}"
    if verb == "diagnose":
        here.run(run)
    if verb == "resume":
        # It ends with 3, as trials are left.
        here.run(f"{run} --max-trials 1 || [ $? = 3 ]")


def meant(shown: Command) -> str:
    words = [PLACEHOLDERS.get(word, word) for word in shown.words]
    return shown.settings + " ".join(words)


def check(shown: Command, here: Place, url: str) -> None:
    """Each trial is complete, and what the options name has its copy."""
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as store:
        states = store.exec_driver_sql("SELECT hash, status FROM trials").all()
        count = store.exec_driver_sql("SELECT count(*) FROM diagnostics")
        measured = count.scalar_one()
    assert {status for _, status in states} == {"completed"}
    assert (measured > 0) == (shown.words[1] == "diagnose")
    trials = [trial for trial, _ in states]
    if "s3://BUCKET" in shown.text:
        stored = [one.key for one in objects(here)]
        for trial in trials:
            assert any(trial in key for key in stored)
    if "/shared/" in shown.text:
        shared = Path(here.names["/shared/"]).glob("checkpoints/**/last.pt")
        assert len(list(shared)) == len(trials)
    copies = {
        "tensorboard": "runs/tensorboard/*/*/events*",
        "mlflow": "runs/mlflow.db",
        "wandb": "runs/wandb/offline-run-*",
    }
    for service, pattern in copies.items():
        if f"--log {service}" in shown.text:
            assert list(here.folder.glob(pattern)), service


def objects(here: Place) -> list[object]:
    store = boto3.resource(
        "s3",
        endpoint_url=here.settings["AWS_ENDPOINT_URL"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
    )
    return list(store.Bucket(BUCKET).objects.all())


def test_each_reason_is_that_of_a_command() -> None:
    for part in NEED_RAY:
        assert any(part in text for text in SHOWN)
    assert len(START) == 3
