"""Malformed input: each case ends within seconds with one message and exit code 2, and
leaves nothing behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.attack import (
    cases_arguments,
    cases_checkpoints,
    cases_data,
    cases_documents,
    cases_keys,
    cases_levels,
    cases_run,
)
from tests.attack.case import PLAN, SPACE, Case, Outcome, breaches
from tests.attack.runner import Runner, here
from tests.attack.stores import store, without
from tests.conftest import TINY

MODULES = (
    cases_documents,
    cases_keys,
    cases_levels,
    cases_data,
    cases_checkpoints,
    cases_arguments,
    cases_run,
)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]
# A document is read in this process, which is faster. Every twentieth one, and all other
# cases, run in a process of their own, whose memory is measured and which may hang.
DOCUMENTS = [
    case
    for case in CASES
    if case.argv == PLAN and isinstance(case.files.get(SPACE), str | bytes)
]
IN_PROCESS = [case for number, case in enumerate(DOCUMENTS) if number % 20]
# One test for so many documents would say too little, one for each would take longer
# than reading it.
PARTS = 40
NAMES_IN_PROCESS = {case.name for case in IN_PROCESS}
BY_PROCESS = [case for case in CASES if case.name not in NAMES_IN_PROCESS]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("attack"))
    yield made
    made.close()


@pytest.mark.parametrize("part", range(PARTS))
def test_malformed_documents_are_refused(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {}
    for number, case in enumerate(IN_PROCESS[part::PARTS]):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        wrong[case.name] = breaches(here(case, folder), case.says)
    assert len(wrong) > 20
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("case", BY_PROCESS, ids=lambda case: case.name)
def test_malformed_input_is_refused(case: Case, runner: Runner) -> None:
    outcome = runner(case)
    assert breaches(outcome, case.says) == [], outcome.stderr[:2000]


def test_there_are_more_than_four_hundred_and_no_two_are_the_same() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, times in names.items() if times > 1] == []
    inputs = Counter((case.argv, str(dict(case.files))) for case in CASES)
    assert [name[0] for name, times in inputs.items() if times > 1] == []
    assert len(CASES) >= 400


GOOD = Outcome(2, "", "error: a message\n", 0.1, 10**8)


@pytest.mark.parametrize(
    ("change", "breach"),
    [
        ({"code": 0}, "exit code 0"),
        ({"code": 1, "stderr": "Traceback (most recent call last):\n"}, "a traceback"),
        ({"stderr": "x.py:3: UserWarning: y\nerror: a message\n"}, "a warning"),
        ({"stderr": "error: a message\nerror: another\n"}, "more than one message"),
        ({"stderr": "error: something else\n"}, "does not say"),
        ({"stderr": "error: a message\n" + "x\n" * 50}, "51 lines"),
        ({"stdout": "x"}, "output beside the message"),
        ({"seconds": 6.0}, "6.0 s"),
        ({"peak": 2 * 10**9}, "a peak of 2000 MB"),
        ({"left": ("runs",)}, "left behind: runs"),
        ({"killed": "it did not end"}, "it did not end"),
    ],
)
def test_each_breach_of_the_contract_is_seen(
    change: dict[str, Any], breach: str
) -> None:
    assert breaches(GOOD, "a message") == []
    assert any(
        breach in found for found in breaches(replace(GOOD, **change), "a message")
    )


def test_the_runner_sees_what_is_left_behind_and_ends_what_hangs(
    runner: Runner,
) -> None:
    good = Case(
        name="good", says="", argv=("plan", "space.yaml"), files={"space.yaml": TINY}
    )
    assert runner(good).code == 0
    trained = replace(good, argv=("run", "space.yaml", "--executor", "inline"))
    assert runner(trained, seconds=0).killed == "it did not end within 0 s"
    assert runner(good, most=10**6).killed == "it took more than 1 MB"
    written = replace(good, argv=("table", "none", "--runs", "here"))
    assert runner(written).left == ()
    started = replace(
        good, argv=("report", "tiny", "--store", "s.db"), files={"s.db": store}
    )
    assert "work/tiny.html" in runner(started).left


def test_a_report_on_a_store_without_epochs_leaves_out_what_needs_them(
    runner: Runner,
) -> None:
    epochless = {"s.db": without("DELETE FROM epochs")}
    outcome = runner(
        Case(
            name="report",
            says="",
            argv=("report", "tiny", "--store", "s.db"),
            files=epochless,
        )
    )
    assert outcome.code == 0, outcome.stderr
    assert outcome.left == ("work/tiny.html",)
