"""Every read of a store waits for a restart of the server."""

from __future__ import annotations

import inspect

import pytest

from ablate.pipeline import Options
from ablate.store import database
from ablate.store.costs import CostReader
from ablate.store.database import LostConnection
from ablate.store.diagnostics import DiagnosticReader
from ablate.store.identities import IdentityReader
from ablate.store.reader import Reader
from ablate.store.studies import StudyReader
from ablate.store.trials import TrialReader
from ablate.store.writer import Writer

READERS = (StudyReader, TrialReader, DiagnosticReader, CostReader, IdentityReader)
READS = [
    pytest.param(read, id=f"{reader.__name__}.{name}")
    for reader in READERS
    for name, read in inspect.getmembers(reader, inspect.isfunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize("read", READS)
def test_a_read_is_patient(read: object) -> None:
    # `known` lists its argument once, and then reads by `_known`.
    assert hasattr(read, "__wrapped__") or read is TrialReader.known
    assert hasattr(TrialReader._known, "__wrapped__")


def test_a_lost_connection_is_tried_again(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    Writer(options.url).close()
    monkeypatch.setattr(database, "RETRY_SECONDS", 0.0)
    with Reader(options.url) as reader:
        connect = reader.studies._engine.connect
        left = [LostConnection("the server is restarting")] * 2

        def losing() -> object:
            if left:
                raise left.pop()
            return connect()

        monkeypatch.setattr(reader.studies._engine, "connect", losing)
        assert reader.studies.all() == []
        assert not left
