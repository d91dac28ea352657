"""A failure that comes back each time is accepted as final."""

from __future__ import annotations

import pytest

from ablate.pipeline import Options
from ablate.records import Epoch, Trial
from ablate.report.verdicts import Verdict, Withheld
from ablate.store.reader import Reader
from tests.conftest import Say
from tests.store.desk import HELPS, TEXT, Desk, by_row, changed, epoch


def failing(trial: Trial, number: int) -> Epoch:
    if changed(trial) == {"layout": "parallel"} and trial.seed == 3:
        raise RuntimeError("out of memory")
    return epoch(trial, number)


def statuses(desk: Desk) -> list[str]:
    with Reader(desk.options.url) as reader:
        return [
            str(trial.status)
            for trial in reader.trials.of("parts")
            if trial.row == HELPS
        ]


@pytest.mark.proof
def test_an_abandoned_trial_is_not_tried_again(options: Options, say: Say) -> None:
    desk = Desk(options)
    desk.run(TEXT, curve=failing)
    place = ("--runs", str(options.runs))
    code, _, error = say("abandon", "parts", "--row", "1", *place)
    assert code == 2
    assert "row 1 of parts has no failed trial; see: ablate status parts" in error
    code, _, error = say("abandon", "parts", "--row", "99", *place)
    assert code == 2
    assert "parts has no trials in row 99; its rows are 0, 1, 2" in error
    code, _, error = say("abandon", "parts", "--row", str(HELPS), *place)
    assert code == 0
    assert "No run tries 1 trial of parts again" in error
    study = desk.run(TEXT)
    assert statuses(desk).count("abandoned") == 1
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.ABANDONED
    assert effects[HELPS + 1].verdict is Verdict.HELPS
    assert "trials abandoned: a trial of the row" in " ".join(
        study.effects_table().notes
    )
    with Reader(options.url) as reader:
        assert not reader.studies.get("parts").unfinished
    code, _, error = say("abandon", "parts", "--undo", *place)
    assert "The next run of parts tries 1 trial again" in error
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS
    assert statuses(desk) == ["completed"] * 4
    assert say("abandon", "parts", *place)[0] == 2
    assert say("abandon", "nothing", *place)[0] == 2
