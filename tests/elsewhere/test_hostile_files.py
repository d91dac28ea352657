"""Files that somebody else has made to harm: `ablate judge` answers in time and memory,
with one short message or with its verdicts, runs nothing, and leaves nothing behind.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attack.case import Case, Outcome
from tests.attack.runner import Runner

MOST_SECONDS = 5.0
MOST_BYTES = 10**9
# No message repeats a longer text of a file.
MOST_MESSAGE = 6_000
SOUND = "norm,seed,acc\na,0,1.5\na,1,2.25\nb,0,3.5\nb,1,4.75\n"
Make = Callable[[Path], None]


def text(content: str | bytes) -> Make:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda path: path.write_bytes(data) and None


def of_columns(number: int, rows: int = 4) -> str:
    head = ",".join(f"c{k}" for k in range(number))
    row = ",".join(str(k % 7) for k in range(number))
    return "\n".join(
        ["norm,seed,acc," + head, *[f"a,{k},1.5,{row}" for k in range(rows)]]
    )


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 * 10**9)


def run_folder(settings: str | bytes, name: str = "hparams.yaml") -> Make:
    """Makes a folder with two runs that have this file of settings."""

    def make(path: Path) -> None:
        for seed in range(2):
            run = path / f"norm=a/seed{seed}"
            run.mkdir(parents=True)
            (run / "metrics.csv").write_text(f"epoch,acc\n1,{seed}.5\n")
            data = settings if isinstance(settings, bytes) else settings.encode()
            (run / name).write_bytes(data)

    return make


def metric_folder(content: bytes, name: str) -> Make:
    def make(path: Path) -> None:
        for norm in ("a", "b"):
            run = path / f"norm={norm}/seed0"
            run.mkdir(parents=True)
            (run / name).write_bytes(content)

    return make


def merges(levels: int) -> str:
    lines = ["a0: &a0 {x: 1}"]
    for k in range(1, levels):
        uses = ", ".join([f"*a{k - 1}"] * 10)
        lines.append(f"a{k}: &a{k} {{<<: [{uses}]}}")
    return "\n".join(lines)


def empties(levels: int) -> str:
    lines = ["a0: &a0 {}"]
    for k in range(1, levels):
        uses = ", ".join(f"k{n}: *a{k - 1}" for n in range(20))
        lines.append(f"a{k}: &a{k} {{{uses}}}")
    return "\n".join(lines)


def event(tag: bytes) -> bytes:
    """Returns a record of TensorBoard with a tag."""
    value = b"\x0a" + _length(len(tag)) + tag + b"\x15" + struct.pack("<f", 1.0)
    summary = b"\x0a" + _length(len(value)) + value
    body = b"\x10\x01\x2a" + _length(len(summary)) + summary
    return struct.pack("<Q", len(body)) + bytes(4) + body + bytes(4)


def _length(number: int) -> bytes:
    coded = b""
    while number > 127:
        coded += bytes([number % 128 + 128])
        number //= 128
    return coded + bytes([number])


MLFLOW = (
    "CREATE TABLE experiments (experiment_id, name);"
    "CREATE TABLE runs (run_uuid, name, status, experiment_id, lifecycle_stage,"
    " start_time);"
    "CREATE TABLE params (run_uuid, key, value);"
    "CREATE TABLE latest_metrics (run_uuid, key, value, step, is_nan);"
    "INSERT INTO runs VALUES ('a', 'x', 'FINISHED', 1, 'active', 0);"
    "INSERT INTO latest_metrics VALUES ('a', 'acc', 1.5, 1, 0);"
)


def database(script: str, *, wal: bool = False, pipe: str = "") -> Make:
    def make(path: Path) -> None:
        with closing(sqlite3.connect(path)) as store:
            if wal:
                store.execute("PRAGMA journal_mode = WAL")
            store.executescript(script)
        if pipe:
            os.mkfifo(f"{path}{pipe}")

    return make


def many_parameters(path: Path) -> None:
    database(MLFLOW)(path)
    with closing(sqlite3.connect(path)) as store, store:
        rows = [("a", f"p{k}", str(k)) for k in range(100_000)]
        store.executemany("INSERT INTO params VALUES (?, ?, ?)", rows)


def parquet(table: Callable[[], pa.Table], **options: object) -> Make:
    return lambda path: pq.write_table(table(), path, **options)


def dictionary(rows: int, length: int) -> pa.Table:
    texts = pa.array([f"{k}" * length for k in "ab"])
    places = pa.array(np.tile([0, 1], rows // 2).astype("int32"))
    return pa.table(
        {
            "norm": pa.DictionaryArray.from_arrays(places, texts),
            "acc": np.arange(rows) / 7,
        }
    )


def many_folders(path: Path) -> None:
    for k in range(3_000):
        run = path / f"r{k}"
        run.mkdir(parents=True)
        (run / "metrics.csv").write_text("epoch,acc\n1,0.5\n")


def links(path: Path) -> None:
    path.mkdir()
    (path / "loop").symlink_to(path)
    (path / "metrics.csv").symlink_to("/dev/zero")


def bytes_name(path: Path) -> None:
    for seed in (b"0", b"1"):
        run = os.fsencode(path) + b"/norm=\xff\xfe/seed" + seed
        os.makedirs(run)
        with open(run + b"/metrics.csv", "w") as file:
            file.write(f"epoch,acc\n1,{seed.decode()}.5\n")


def pipes(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "metrics.csv")
    os.mkfifo(path / "hparams.yaml")


CASES: dict[str, tuple[str, Make]] = {
    # Tables of text.
    "20,000 columns": ("a.csv", text(of_columns(20_000))),
    "100,000 columns": ("a.csv", text(of_columns(100_000))),
    "1,000 lines of 4,000 columns": ("a.csv", text(of_columns(4_000, 1_000))),
    "a cell of 20 MB": ("a.csv", text(SOUND + f"b,2,{'9' * 20_000_000}\n")),
    "a name of 2 MB": ("a.csv", text(f"norm,seed,acc{'x' * 2_000_000}\na,0,1\n")),
    "a name of 5,000 characters": ("a.csv", text(f"norm,acc{'x' * 5_000}\na,1\nb,2\n")),
    "8 GB of nothing": ("a.csv", sparse),
    "zeros": ("a.csv", text(b"\0" * 1_000_000)),
    "a quote that is not closed": (
        "a.csv",
        text('norm,acc\n"a,1\n' + "b,2\n" * 100_000),
    ),
    "only separators": ("a.csv", text("," * 1_000_000)),
    "only line feeds": ("a.csv", text("\n" * 1_000_000)),
    "a huge number": ("a.csv", text(SOUND + f"b,2,1{'0' * 100_000}\n")),
    "a list as a level": (
        "a.csv",
        text(SOUND.replace("b,", f'"{"[1, 2], " * 9_000}",')),
    ),
    "control characters": ("a.csv", text(SOUND.replace("norm", "\x1b[2Jnorm"))),
    "two columns of one name": ("a.csv", text("a,a,b\n1,2,3\n")),
    "random bytes": ("a.csv", text(np.random.default_rng(0).bytes(300_000))),
    "gzip": ("a.csv", text(gzip.compress(SOUND.encode()))),
    "a line with more cells": ("a.csv", text("norm,acc\na,70,13\nb,71,20\n")),
    "half a UTF-16": ("a.csv", text(b"\xff\xfea\0,\0b")),
    "numbers that are none": ("a.csv", text("norm,acc\na,nan\nb,inf\n")),
    "lines of items": (
        "a.csv",
        text("doc_id,norm,acc\n" + "1,a,1\n2,a,0\n1,b,1\n2,b,1\n"),
    ),
    "a list of 300 kB": (
        "a.json",
        text(json.dumps([{"a": list(range(50_000)), "b": 1}])),
    ),
    # JSON.
    "deep lists": ("a.json", text("[" * 200_000 + "]" * 200_000)),
    "deep objects": ("a.json", text('{"a":' * 5_000 + "1" + "}" * 5_000)),
    "100,000 keys": (
        "a.json",
        text(json.dumps([{f"k{k}": k for k in range(100_000)}])),
    ),
    "a key in each line": (
        "a.jsonl",
        text("\n".join(json.dumps({f"k{k}": 1.5, "b": k}) for k in range(20_000))),
    ),
    "a list of numbers": ("a.json", text("[" + "1," * 500_000 + "1]")),
    "a text": ("a.json", text('"' + "x" * 1_000_000 + '"')),
    "a number of 5,000 digits": ("a.json", text('[{"acc": ' + "9" * 5_000 + "}]")),
    "cut JSON": ("a.jsonl", text('{"acc": 1}\n{"acc":')),
    "half of a character": ("a.json", text('[{"norm": "\\ud800", "acc": 1.5}]')),
    "a journal of Optuna": ("a.jsonl", text('{"op_code": 0}\n' * 1_000)),
    # Parquet.
    "cut Parquet": ("a.parquet", text(b"PAR1")),
    "texts of 1 kB": ("a.parquet", parquet(lambda: dictionary(1_000_000, 1_000))),
    "texts of 1 MB": ("a.parquet", parquet(lambda: dictionary(1_000, 1_000_000))),
    "2.4 GB of zeros": (
        "a.parquet",
        parquet(lambda: pa.table({"x": np.zeros(30_000_000)}), use_dictionary=False),
    ),
    "6,000 columns in Parquet": (
        "a.parquet",
        parquet(lambda: pa.table({f"c{k}": [1.0] for k in range(6_000)})),
    ),
    "nested Parquet": (
        "a.parquet",
        parquet(
            lambda: pa.table({"x": [[{"a": [1]}]] * 1_000, "acc": np.arange(1_000.0)})
        ),
    ),
    # Databases.
    "a pipe as a journal": ("a.db", database(MLFLOW, pipe="-journal")),
    "a pipe as a log": ("a.db", database(MLFLOW, pipe="-wal")),
    "a log": ("a.db", database(MLFLOW, wal=True)),
    "100,000 parameters": ("a.db", many_parameters),
    "generated columns": (
        "a.db",
        database(
            MLFLOW.replace(
                "latest_metrics (run_uuid, key,",
                "latest_metrics (run_uuid, key AS (hex(zeroblob(200000000))),",
            ).replace("'acc', 1.5", "1.5")
        ),
    ),
    "an endless view": (
        "a.db",
        database(
            f"{MLFLOW} DROP TABLE params; CREATE VIEW params AS WITH RECURSIVE c(x) AS"
            " (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'a', x, x FROM c;"
        ),
    ),
    "noise as a database": ("a.db", text(b"SQLite format 3\0" + b"x" * 100_000)),
    "an empty database": ("a.db", text(b"")),
    "a database of others": ("a.db", database("CREATE TABLE t (a);")),
    # Folders.
    "merges": ("runs", run_folder(merges(9))),
    "more merges": ("runs", run_folder(merges(40))),
    "empty mappings": ("runs", run_folder(empties(9))),
    "sexagesimal numbers": ("runs", run_folder("a: 1" + ":1" * 450_000)),
    "tags that run code": (
        "runs",
        run_folder("a: !!python/object/apply:os.system [exit]"),
    ),
    "deep settings": ("runs", run_folder("[" * 400_000)),
    "settings of 1 MB": (
        "runs",
        run_folder("".join(f"k{k}: {k}\n" for k in range(60_000))),
    ),
    "settings in bytes": ("runs", run_folder(b"a: \xff\xfe\0")),
    "aliases of itself": ("runs", run_folder("a: &a [*a]")),
    "settings as JSON": ("runs", run_folder("{" * 100_000, "config.json")),
    "a tag of 20 MB": (
        "runs",
        metric_folder(event(b"x" * 20_000_000), "events.tfevents.1"),
    ),
    "20,000 tags": (
        "runs",
        metric_folder(
            b"".join(event(b"t%d" % k) for k in range(20_000)), "e.tfevents.1"
        ),
    ),
    "noise as events": (
        "runs",
        metric_folder(b"\x05" + b"\0" * 11 + b"x" * 90, "e.tfevents.1"),
    ),
    "100,000 columns in a run": (
        "runs",
        metric_folder(of_columns(100_000).encode(), "metrics.csv"),
    ),
    "3,000 runs": ("runs", many_folders),
    "links": ("runs", links),
    "pipes": ("runs", pipes),
    "a name that is no UTF-8": ("runs", bytes_name),
    "nothing": ("runs", lambda path: path.mkdir()),
}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("hostile"))
    yield made
    made.close()


def faults(outcome: Outcome) -> list[str]:
    said = outcome.stderr
    found = {
        outcome.killed: bool(outcome.killed),
        "a traceback": "Traceback" in said,
        "a warning": "Warning" in said,
        f"exit code {outcome.code}": outcome.code not in (0, 2),
        f"{len(said)} characters": len(said) > MOST_MESSAGE,
        "a control sequence": "\x1b[2J" in said + outcome.stdout,
        f"{outcome.seconds:.1f} s": outcome.seconds > MOST_SECONDS,
        f"{outcome.peak / 1e6:.0f} MB": outcome.peak > MOST_BYTES,
        f"left behind: {outcome.left}": bool(outcome.left),
        "no message": outcome.code == 2 and "error: " not in said,
    }
    return [fault for fault, is_there in found.items() if is_there]


@pytest.mark.proof
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_file_is_answered(name: str, runner: Runner) -> None:
    file, make = CASES[name]
    for more in ((), ("--metric", "nope")):
        case = Case(name=name, says="", argv=("judge", file, *more), files={file: make})
        outcome = runner(case)
        assert faults(outcome) == [], outcome.stderr[-400:]


@pytest.mark.proof
def test_a_million_lines_are_read(runner: Runner) -> None:
    """A sound file may take 10 s for each million lines."""

    def make(path: Path) -> None:
        lines = 1_000_000
        pd.DataFrame(
            {
                "norm": np.repeat(["a", "b"], lines // 2),
                "seed": np.tile(np.repeat(np.arange(50), 10_000), 2),
                "epoch": np.tile(np.arange(10_000), 100),
                "acc": np.random.default_rng(0).normal(70, 1, lines).round(4),
            }
        ).to_csv(path, index=False)

    argv = ("judge", "a.csv", "--baseline", "norm=a")
    outcome = runner(Case(name="a", says="", argv=argv, files={"a.csv": make}))
    assert outcome.code == 0, outcome.stderr
    assert "100 runs" in outcome.stdout
    assert outcome.seconds < 15
    assert outcome.peak < MOST_BYTES
