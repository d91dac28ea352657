"""Results that were known when a study declared them, and trials without a value."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import pipeline, registry, space
from ablate.cli.declared_again import declared_again_lines
from ablate.pipeline import Options
from ablate.records import RESOLVED, Epoch, History, Status, Trial
from ablate.report.effects import SURVIVORS
from ablate.report.effects import effects as effects_of
from ablate.report.tables import render
from ablate.report.verdicts import Verdict, Withheld
from ablate.review import review
from ablate.store.other import import_studies
from ablate.study import Study
from tests.store.desk import (
    HELPS,
    TEXT,
    Curve,
    Desk,
    by_row,
    changed,
    epoch,
    helps,
    names,
    with_seeds,
)

# Each test runs several studies.
pytestmark = pytest.mark.slow

SMALLER = TEXT.replace("  layout: [serial, parallel]\n", "")
# The rows with `layout: parallel`, which helps.
NEW_ROWS = {row for row in range(1, 8) if helps(row)}


@pytest.fixture
def desk(options: Options) -> Desk:
    return Desk(options)


def exploratory(study: Study) -> set[int]:
    return {
        row
        for row, effect in by_row(study).items()
        if effect.withheld is Withheld.KNOWN
    }


def test_rows_that_another_study_trained_first_are_exploratory(desk: Desk) -> None:
    """The best of them could be chosen after this study was declared."""
    desk.run(SMALLER)
    desk.run(TEXT, "other")
    study = desk.run(TEXT)
    assert exploratory(study) == NEW_ROWS
    assert "known before" in names(study)


@pytest.mark.parametrize(
    "before",
    [
        ["parts SMALLER", "other TEXT"],
        ["parts SMALLER"],
        ["parts TEXT", "parts SMALLER"],
        ["other TEXT"],
        ["other SMALLER"],
        ["other SMALLER", "other TEXT"],
        ["parts TEXT"],
        ["parts TEXT", "other TEXT"],
        [],
    ],
    ids=" then ".join,
)
def test_a_plan_names_the_rows_that_will_be_exploratory(
    desk: Desk, before: list[str]
) -> None:
    """It says so before anything is declared."""
    for one in before:
        name, text = one.split()
        desk.run({"TEXT": TEXT, "SMALLER": SMALLER}[text], name)
    declared = space.load(TEXT, "parts.yaml")
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    said = [line for line in declared_again_lines(shown) if "exploratory" in line]
    assert bool(said) == bool(shown.known_rows)
    assert set(shown.known_rows) == exploratory(desk.run(TEXT))


def test_a_plan_knows_what_a_replaced_declaration_had(desk: Desk) -> None:
    """Nothing was compared, so the new declaration replaces it and begins later."""
    desk.run(TEXT, most=0)
    desk.run(f"{SMALLER}fixed: {{layout: parallel}}\n", "other")
    text = TEXT.replace("seeds: 4", "seeds: 5")
    declared = space.load(text, "parts.yaml")
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    assert shown.known_rows
    assert set(shown.known_rows) == exploratory(desk.run(text))


def test_a_plan_of_known_rows_adds_no_seeds(desk: Desk) -> None:
    desk.run(TEXT, "other")
    text = with_seeds("{until_decided: 8, start: 4, step: 2}")
    declared = space.load(text, "parts.yaml")
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    assert not shown.to_train
    desk.run(text)
    assert len(desk.run(text).results().cells[1].values) == 4


@pytest.mark.parametrize("before", [False, True])
def test_a_plan_of_final_seeds_has_the_level_of_the_study(
    desk: Desk, before: bool
) -> None:
    if before:
        desk.run(TEXT, "other")
    text = with_seeds("{final: 4}")
    declared = space.load(text, "parts.yaml")
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    history = desk.run(text).results().history
    assert shown.history.share == history.share == (0.9 if before else 1.0)
    assert shown.history.had_results == history.had_results == before


def test_rows_that_are_declared_before_they_are_trained_are_not(desk: Desk) -> None:
    desk.run(SMALLER)
    study = desk.run(TEXT)
    assert not exploratory(study)


def test_rows_that_are_dropped_and_taken_back_keep_their_verdicts(desk: Desk) -> None:
    desk.run(TEXT)
    desk.run(SMALLER)
    study = desk.run(TEXT)
    assert not exploratory(study)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS


def test_seeds_that_another_study_trained_first_are_known(desk: Desk) -> None:
    """Otherwise they would count in the first phase, at its level."""
    desk.run(TEXT)
    desk.run(with_seeds("8"), "other")
    study = desk.run(with_seeds("8"))
    # What the first phase has shown with its own seeds stays.
    effects = by_row(study)
    assert {effects[row].verdict for row in NEW_ROWS} == {Verdict.HELPS}
    assert exploratory(study) == set(range(1, 8)) - NEW_ROWS


def test_chosen_seeds_of_row_0_give_no_verdict(desk: Desk) -> None:
    desk.run(TEXT)
    desk.run(with_seeds("8"), "other")
    study = desk.run(with_seeds("[0, 1, 2, 3, 5, 7]"))
    history = study.results().history
    assert history.changed == ""
    assert history.chosen_from == 1
    # The first phase had all of its seeds.
    assert by_row(study)[HELPS].verdict is Verdict.HELPS
    assert exploratory(study) == set(range(1, 8)) - NEW_ROWS


def test_one_chosen_seed_of_row_0_is_enough(desk: Desk) -> None:
    """Other rows may not have it, so they are not known."""
    desk.run(SMALLER)
    rows = "design: rows\nrows: [{}, {layout: parallel}]\n"
    more = TEXT.replace("seeds: 4", "seeds: 8")
    for factor in ("shortcuts.count: [0, 1]", "ffn.kernel: [none, 3]"):
        more = more.replace(f"  {factor}\n", "")
    desk.run(more + rows, "other")
    study = desk.run(SMALLER.replace("seeds: 4", "seeds: [0, 1, 2, 3, 6, 7]"))
    assert study.results().history.chosen_from == 1
    assert exploratory(study) == {1, 2, 3}


def test_known_rows_beside_a_new_row_0_are_exploratory(desk: Desk) -> None:
    """The best of them would seem to help."""
    other = TEXT.replace("[serial, parallel]", "[parallel]")
    other = other.replace("  ffn.kernel: [none, 3]\n", "")
    rows = "rows: [{layout: parallel}, {layout: parallel, shortcuts.count: 1}]\n"
    desk.run(f"{other}design: rows\n{rows}", "other")
    study = desk.run(TEXT)
    assert exploratory(study) == {4, 6}


def test_another_name_does_not_make_known_rows_new(desk: Desk) -> None:
    desk.run(SMALLER)
    desk.run(TEXT, "other")
    desk.run(TEXT)
    assert exploratory(desk.run(TEXT, "again")) == NEW_ROWS


def test_a_variant_that_becomes_the_baseline_may_be_the_worst_one(desk: Desk) -> None:
    desk.run(TEXT, "other")
    swapped = TEXT.replace("[none, 3]", "[3, none]").replace("[0, 1]", "[0, 2]")
    study = desk.run(swapped)
    assert study.results().history.chosen_from == 0
    assert "row 0 was a variant of another study" in " ".join(
        study.effects_table().notes
    )
    (finding,) = [
        one for one in review("parts", study.store) if one.name == "known before"
    ]
    assert "row 0 was a variant of another study before" in finding.text
    effects = by_row(study)
    assert {effects[row].verdict for row in effects} == {Verdict.INCONCLUSIVE}


def test_looks_that_were_declared_before_are_not_known(desk: Desk) -> None:
    """Their seeds are granted only later, when another study has trained them."""
    looks = with_seeds("{until_decided: 8, start: 4, step: 2}")
    desk.run(looks, most=30)
    desk.run(with_seeds("8"), "other")
    assert not exploratory(desk.run(looks))


def test_proposals_of_a_longer_search_may_be_known(desk: Desk) -> None:
    search = "strategy: {name: brute-force, cells: 3}\n"
    desk.run(TEXT + search)
    desk.run(TEXT, "other")
    study = desk.run(TEXT + search.replace("3", "7"))
    found = by_row(study)
    assert len(found) > 3
    late = [effect for effect in found.values() if effect.judged and effect.row > 2]
    assert {effect.withheld for effect in late} == {Withheld.KNOWN}


def test_a_search_with_a_failed_trial_has_ended(desk: Desk) -> None:
    text = TEXT + "strategy: {name: brute-force, cells: 8}\n"
    study = desk.run(text, curve=fails_at(row=HELPS, seed=3))
    results = study.results()
    assert not results.searching
    reasons = [effect.withheld for effect in by_row(study).values()]
    assert reasons.count(Withheld.FAILED) == 1
    assert reasons.count(None) == len(reasons) - 1


def test_a_row_with_a_failed_trial_waits_alone(desk: Desk) -> None:
    failing = fails_at(row=HELPS, seed=3)
    study = desk.run(TEXT, curve=failing)
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.FAILED
    assert effects[HELPS].estimate is not None
    assert effects[HELPS + 1].verdict is Verdict.HELPS
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def test_a_trial_that_failed_in_a_phase_gives_it_no_verdict_later(desk: Desk) -> None:
    desk.run(TEXT, curve=fails_at(row=HELPS, seed=3))
    study = desk.run(with_seeds("5"))
    results = study.results()
    alone = effects_of(replace(results, history=History()), margin=0.5)
    for row in (HELPS, HELPS + 1):
        found, whole = by_row(study)[row].judged, alone[row - 1].judged
        assert found is not None
        assert whole is not None
        if row == HELPS:
            # 0.25 % instead of 4.5 %.
            assert found.p == pytest.approx(18 * whole.p)
        else:
            # The first phase has shown it, with four seeds.
            assert found.p < 10 * whole.p


def fails_at(row: int, seed: int) -> Curve:
    """Fails one trial of the row with only `layout` changed."""
    assert row == HELPS

    def curve(trial: Trial, number: int) -> Epoch:
        if changed(trial) == {"layout": "parallel"} and trial.seed == seed:
            raise RuntimeError("out of memory")
        return epoch(trial, number)

    return curve


def test_a_search_gives_no_verdict_before_it_ends(desk: Desk) -> None:
    """Otherwise it could be stopped when it looks well."""
    text = TEXT + "strategy: {name: random, cells: 6}\n"
    study = desk.run(text, most=12)
    assert study.results().searching
    shown = [effect for effect in by_row(study).values() if effect.judged]
    assert shown
    assert {effect.withheld for effect in shown} == {Withheld.UNFINISHED}
    study = desk.run(text)
    assert not study.results().searching
    assert all(effect.withheld is None for effect in by_row(study).values())


def test_a_search_that_is_cut_short_has_had_its_first_phase(desk: Desk) -> None:
    desk.run(TEXT + "strategy: {name: random, cells: 6}\n", most=12)
    study = desk.run(TEXT + "strategy: {name: random, cells: 3}\n")
    phases = study.results().history.phases
    assert [phase.finished for phase in phases] == [False, True]


def test_pruned_seeds_leave_survivors(desk: Desk) -> None:
    study = desk.run(TEXT)
    with closing(sqlite3.connect(desk.options.url)) as connection:
        connection.execute(
            "UPDATE trials SET status = 'pruned' WHERE hash = (SELECT trial_hash FROM"
            " cell_trials JOIN cells ON cells.id = cell_id WHERE number = ? AND seed ="
            " 3)",
            [HELPS],
        )
        connection.commit()
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.PRUNED
    assert effects[HELPS + 1].verdict is Verdict.HELPS
    assert "scheduler: fifo" in render(study.effects_table(), "md")


def test_stores_that_share_a_study_share_its_history(
    desk: Desk, tmp_path: Path
) -> None:
    """A study that was declared twice is not one that was declared once."""
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(TEXT)
    there.run(with_seeds("6"))
    study = desk.run(with_seeds("6"))
    assert len(study.results().history.phases) == 1
    import_studies(there.options.url, desk.options.url)
    assert len(study.results().history.phases) == 2
    import_studies(there.options.url, desk.options.url)
    assert len(study.results().history.phases) == 2


def test_a_study_that_two_machines_share_keeps_its_verdicts(
    desk: Desk, tmp_path: Path
) -> None:
    """The one that declares it later imports what the other has trained before."""
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(TEXT)
    study = desk.run(TEXT, most=3)
    import_studies(there.options.url, desk.options.url)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS


def test_a_part_of_ones_own_that_changes_is_another_declaration(
    desk: Desk, tmp_path: Path
) -> None:
    page = Path(__file__).parents[2].joinpath("docs/own.md").read_text()
    (code,) = re.findall(
        r"```python file=scale.py\n(\"\"\"A constant on.*?)```", page, re.DOTALL
    )
    file = tmp_path / "mine.py"
    text = TEXT.replace("  ffn.kernel: [none, 3]\n", "  scale: [1, 0.5]\n")
    for version in ("", "", "# Corrected.\n"):
        file.write_text(code + version)
        registry.clear()
        registry.load_file(file)
        study = desk.run(text)
    registry.clear()
    assert len(study.results().history.phases) == 2
    (finding,) = [one for one in review("parts", study.store) if one.name == AGAIN]
    assert "code factor scale: " in finding.text


AGAIN = "declared again"


def test_diverged_and_pruned_are_the_only_ends_without_a_value() -> None:
    """A new one needs a reason of its own."""
    assert set(RESOLVED) == {Status.COMPLETED, Status.FAILED, *SURVIVORS}
