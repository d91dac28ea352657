"""Malformed input: each case ends within seconds with one message and exit code 2, and leaves nothing behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attack import cases_checkpoints, cases_data, cases_documents, cases_keys, cases_levels
from tests.attack.case import Case, breaches
from tests.attack.runner import Runner

MODULES = (cases_documents, cases_keys, cases_levels, cases_data, cases_checkpoints)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    made = Runner(tmp_path_factory.mktemp("attack"))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_malformed_input_is_refused(case: Case, runner: Runner) -> None:
    outcome = runner(case)
    assert breaches(outcome, case.says) == [], outcome.stderr[:2000]


def test_there_are_more_than_four_hundred_and_no_two_are_the_same() -> None:
    names = Counter(case.name for case in CASES)
    assert [name for name, times in names.items() if times > 1] == []
    inputs = Counter((case.argv, str(dict(case.files))) for case in CASES)
    assert [name[0] for name, times in inputs.items() if times > 1] == []
    assert len(CASES) >= 400
