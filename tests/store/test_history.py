"""The phases of a study, and what each manipulation does to its verdicts."""

from __future__ import annotations

import itertools
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import pytest

from ablate import pipeline, space
from ablate.cli.declared_again import declared_again_lines
from ablate.cli.power import power_lines
from ablate.cli.progress import Progress
from ablate.errors import AblateError, StoreError
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Epoch, History, Trial
from ablate.report.effects import effects as effects_of
from ablate.report.factorial import Factorial
from ablate.report.paper_table import PaperStyle
from ablate.report.tables import render
from ablate.report.verdicts import Verdict, Withheld
from ablate.review import review
from ablate.store import moment
from ablate.study import Study
from tests.store.desk import (
    HELPS,
    TEXT,
    Desk,
    by_row,
    changed,
    epoch,
    helps,
    names,
    with_seeds,
)
from tests.store.older import drop_views

# Each test runs several studies.
pytestmark = pytest.mark.slow


@pytest.fixture
def desk(options: Options) -> Desk:
    return Desk(options)


def test_a_first_declaration_has_nine_tenths_of_the_level(desk: Desk) -> None:
    study = desk.run(TEXT)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.045)
    assert effect.verdict is Verdict.HELPS
    assert len(study.results().history.phases) == 1


def test_verdicts_are_taken_when_all_trials_have_ended(desk: Desk) -> None:
    """Otherwise a run could be stopped when it looks well."""
    study = desk.run(TEXT, most=28)
    effect = by_row(study)[HELPS]
    assert len(effect.seeds) >= 3
    assert effect.withheld is Withheld.UNFINISHED
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert "trials unfinished" in render(study.effects_table(), "md")
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def test_seeds_that_are_added_are_tested_at_their_own_level(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("6"))
    history = study.results().history
    assert [phase.finished for phase in history.phases] == [True, True]
    assert history.phases[0].rows == 7
    effects = by_row(study)
    # What the first phase has shown stays.
    assert effects[HELPS].verdict is Verdict.HELPS
    others = [effect for row, effect in effects.items() if not helps(row)]
    assert all(effect.verdict is not Verdict.HELPS for effect in others)
    for effect in effects.values():
        assert effect.judged is not None
        assert effect.judged.level == pytest.approx(0.0025)
    table = study.effects_table()
    assert "tested at 0.25 %" in " ".join(table.notes)


def test_a_clock_that_is_set_back_changes_no_verdict(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result counts after the declaration that it was trained for, and before the
    next one.
    """
    backwards = itertools.count(2_000_000_000, -3600)
    monkeypatch.setattr(moment, "time", Mock(time=lambda: float(next(backwards))))
    study = desk.run(TEXT)
    effects = by_row(study)
    assert effects[HELPS].verdict is Verdict.HELPS
    assert {effect.withheld for effect in effects.values()} == {None}
    study = desk.run(with_seeds("6"))
    assert len(study.results().history.phases) == 2
    by_seed = study.results().cells[0].phase_of
    assert by_seed == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1}
    assert {effect.withheld for effect in study.effects()} == {None}


FINAL = TEXT.replace("seeds: 4", "seeds: {final: 4}")


def test_final_seeds_have_the_whole_level(desk: Desk) -> None:
    study = desk.run(FINAL)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.05)
    undecided = [one for one in study.effects() if one.verdict is Verdict.INCONCLUSIVE]
    assert undecided
    # Further seeds would give no verdict, so none are recommended.
    assert {one.further for one in undecided} == {None}
    assert {one.withheld for one in undecided} == {None}


@pytest.mark.parametrize("seeds", ["6", "{final: 6}"])
def test_what_is_added_to_final_seeds_has_no_verdict(desk: Desk, seeds: str) -> None:
    first = by_row(desk.run(FINAL))[HELPS]
    study = desk.run(with_seeds(seeds))
    effects = by_row(study)
    assert effects[HELPS].verdict is Verdict.HELPS
    assert effects[HELPS].p_adjusted == first.p_adjusted
    others = [effect for row, effect in effects.items() if not helps(row)]
    assert {effect.withheld for effect in others} == {Withheld.FINAL}
    table = render(study.effects_table(), "md")
    assert "after final seeds" in table
    assert "tested at" not in table
    found = {finding.name: finding.text for finding in review(study.name, study.store)}
    assert (
        "rows and factors that were added later get no verdict"
        in found["declared again"]
    )


def test_main_effects_after_final_seeds_have_no_verdict(desk: Desk) -> None:
    desk.run(FINAL)
    study = desk.run(with_seeds("6"))
    results, declared = study.read()
    model = Factorial(results, declared.factors.baseline)
    terms = [*model.main_effects(0.5, "max"), *model.interactions(0.5, "max")]
    assert {one.judged.withheld for one in terms if one.judged} == {Withheld.FINAL}


def test_seeds_that_become_final_after_results_do_not_gain(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(FINAL)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.045)
    later = by_row(desk.run(with_seeds("{final: 6}")))[HELPS]
    assert later.judged is not None
    assert later.judged.level == pytest.approx(0.0025)


def test_final_seeds_of_rows_that_had_results_do_not_gain(desk: Desk) -> None:
    """One seed of each row may be the reason for those that are declared."""
    desk.run(with_seeds("1"))
    study = desk.run(FINAL)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.045)
    assert "use 4.5 % instead of 5 %" in render(study.effects_table(), "md")


def test_final_seeds_can_be_changed_before_any_row_is_compared(desk: Desk) -> None:
    desk.run(FINAL, most=1)
    effect = by_row(desk.run(TEXT))[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.045)


def test_what_one_phase_has_shown_survives_an_unfinished_next_one(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("6"), most=3)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS


def test_a_phase_that_was_interrupted_gives_no_verdict(desk: Desk) -> None:
    """Its seeds count in the next phase, at the level of that phase."""
    desk.run(with_seeds("6"), most=34)
    study = desk.run(TEXT)
    history = study.results().history
    assert [phase.finished for phase in history.phases] == [False, True]
    results = study.results()
    effect = by_row(study)[HELPS]
    alone = effects_of(replace(results, history=History()), 0.5)[HELPS - 1]
    assert effect.judged is not None
    assert alone.judged is not None
    # 0.25 % instead of 4.5 %.
    assert effect.judged.p == pytest.approx(18 * alone.judged.p)


def test_a_change_before_any_row_could_be_compared_costs_nothing(desk: Desk) -> None:
    desk.run(TEXT, most=5)
    study = desk.run(TEXT.replace("seeds: 4", "seeds: 5\nmargin: 2"))
    assert len(study.results().history.phases) == 1
    assert study.read()[1].criterion.margin == 2


WITHOUT_VERDICT = {
    "seeds were selected": with_seeds("[0, 2, 3]"),
    "the metric was swapped": TEXT + "metric: {loss: min}\n",
    "the baseline was swapped": TEXT.replace(
        "[serial, parallel]", "[parallel, serial]"
    ),
}


@pytest.mark.parametrize("text", WITHOUT_VERDICT.values(), ids=WITHOUT_VERDICT)
def test_a_comparison_that_was_changed_gives_no_verdict(desk: Desk, text: str) -> None:
    desk.run(TEXT)
    study = desk.run(text)
    assert {effect.withheld for effect in study.effects()} == {Withheld.CHANGED}
    assert "declared again" in names(study)
    # As it was declared first, the study has its verdicts again.
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def test_rows_that_are_dropped_still_count(desk: Desk) -> None:
    whole = by_row(desk.run(TEXT))
    study = desk.run(TEXT.replace("  shortcuts.count: [0, 1]\n", ""))
    kept = by_row(study)
    assert len(kept) == 3
    judged = {effect.changed.get("layout"): effect.judged for effect in kept.values()}
    before = whole[HELPS].judged
    assert judged["parallel"] is not None
    assert before is not None
    # Three rows alone would have a smaller p value.
    assert judged["parallel"].p >= before.p
    assert {"declared again"} <= names(study)


def test_a_margin_cannot_become_wider_after_results(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(TEXT + "margin: 3\n")
    assert study.read()[1].criterion.margin == 0.5
    with pytest.raises(AblateError, match="margin 2 is larger than"):
        study.effects(margin=2)
    assert study.effects(margin=0.1)
    desk.run(TEXT + "margin: 0.2\n")
    assert study.read()[1].criterion.margin == 0.2


def test_rows_that_are_named_primary_after_results_are_not(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(TEXT + "primary: [{layout: parallel}]\n")
    assert study.results().history.primary == ()
    assert not any(effect.primary for effect in study.effects())
    assert "declared again" in names(study)


def test_another_name_keeps_the_history(desk: Desk) -> None:
    desk.run(TEXT)
    desk.run(with_seeds("6"))
    first = Study("parts", desk.options.url)
    second = desk.run(with_seeds("6"), "renamed")
    assert first.results().history == second.results().history
    assert [effect.judged for effect in first.effects()] == [
        effect.judged for effect in second.effects()
    ]


def test_known_results_under_another_name_are_exploratory(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("3"), "again")
    effect = by_row(study)[HELPS]
    assert effect.withheld is Withheld.KNOWN
    assert {"known before", "seeds left out"} <= names(study)
    assert "exploratory" in render(study.effects_table(), "md")


def test_new_rows_beside_a_known_baseline_have_the_full_level(desk: Desk) -> None:
    desk.run(TEXT.replace("  layout: [serial, parallel]\n", ""))
    study = desk.run(TEXT, "more")
    effects = by_row(study)
    assert effects[HELPS].verdict is Verdict.HELPS
    assert effects[1].withheld is Withheld.KNOWN


def test_new_seeds_under_another_name_have_the_full_level(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("[4, 5, 6, 7]"), "again")
    assert by_row(study)[HELPS].verdict is Verdict.HELPS
    assert not {"known before", "seeds left out"} & names(study)


def test_primary_rows_are_tested_before_the_others(desk: Desk) -> None:
    study = desk.run(TEXT + "primary: [{layout: parallel}, {ffn.kernel: 3}]\n")
    effects = by_row(study)
    assert [row for row, effect in effects.items() if effect.primary] == [1, HELPS]
    first, second = effects[HELPS], effects[1]
    assert first.judged is not None
    assert first.estimate is not None
    assert first.judged.p == pytest.approx(first.estimate.p / 0.9)
    assert first.verdict is Verdict.HELPS
    # The kernel does nothing, so the rows after it are not tested.
    assert second.verdict is not Verdict.HELPS
    assert effects[5].withheld is Withheld.NOT_TESTED
    assert "Primary, tested one after the other" in " ".join(
        study.effects_table().notes
    )


def test_primary_factors_are_the_family_of_the_study(desk: Desk) -> None:
    study = desk.run(with_seeds("5") + "primary: [layout, ffn.kernel]\n")
    table = study.effects_table("factors")
    verdicts = {row["factor"]: row["verdict"] for row in table.data}
    assert verdicts["layout"] == "helps"
    assert verdicts["shortcuts.count"] in ("inconclusive", "no difference")
    assert "Primary, tested one after the other" in " ".join(table.notes)
    for other in ("rows", "interactions"):
        notes = " ".join(study.effects_table(other).notes)
        assert (
            "Exploratory: the study's error rate of 5 % covers only the main effects"
            in notes
        )
    said = "Exploratory: the study's error rate of 5"
    assert said in " ".join(study.results_table().notes)
    assert said in " ".join(study.paper_table(PaperStyle()).split())


def test_tables_of_factors_are_exploratory_otherwise(desk: Desk) -> None:
    study = desk.run(TEXT)
    assert "Exploratory" not in " ".join(study.effects_table().notes)
    assert "Exploratory" not in " ".join(study.results_table().notes)
    assert "Exploratory" not in study.paper_table(PaperStyle())
    for of in ("factors", "interactions", "contributions"):
        notes = " ".join(study.effects_table(of).notes)
        assert (
            "Exploratory: the study's error rate of 5 % covers only the comparisons"
            in notes
        )


def test_a_resumed_study_adds_the_seeds_of_its_history(desk: Desk) -> None:
    """While seeds are added, verdicts are those of the later table."""
    desk.run(with_seeds("3"))
    text = with_seeds("{until_decided: 9, start: 3, step: 3}")
    study = desk.run(text)
    history = study.results().history
    assert len(history.phases) == 2
    seeds = {row: len(effect.seeds) for row, effect in by_row(study).items()}
    decided = {row for row, one in by_row(study).items() if one.verdict.startswith("h")}
    assert decided >= {HELPS}
    assert all(seeds[row] == 9 for row in seeds if row not in decided)


CONTROLLED = TEXT.replace("  shortcuts.count: [0, 1]\n", "") + "control: iso-flops\n"


def test_comparisons_with_controls_can_be_primary(desk: Desk) -> None:
    study = desk.run(CONTROLLED + "primary: [controls]\n")
    assert "Exploratory" in " ".join(study.effects_table().notes)
    note = study.results_table().notes[-1]
    assert note.startswith("Exploratory") and "the stars of this table" in note
    table = study.effects_table("controls")
    assert "Exploratory" not in " ".join(table.notes)
    verdicts = {row["change"]: row["verdict"] for row in table.data}
    assert verdicts["layout = parallel"] == "helps"
    # They were known before they became primary under another name.
    other = desk.run(
        CONTROLLED.replace("seeds: 4", "seeds: 3") + "primary: [controls]\n", "other"
    )
    data = other.effects_table("controls").data
    assert {row["withheld"] for row in data} == {"exploratory"}


def test_a_primary_row_that_the_plan_lacks_is_refused(desk: Desk) -> None:
    text = TEXT + "design: one-at-a-time\n"
    both = "{ffn.kernel: 3, layout: parallel}"
    for one in ("9", both):
        with pytest.raises(
            AblateError, match="primary: no row of the plan is"
        ) as error:
            desk.run(text + f"primary: [{one}]\n")
        assert one in str(error.value)
        assert "by its number (1, 2, 3)" in str(error.value)
    # Levels of row 0 may be named too.
    study = desk.run(text + "primary: [{ffn.kernel: 3, layout: serial}]\n")
    assert [effect.row for effect in study.effects() if effect.primary] == [3]


def test_there_is_no_verdict_on_survivors(
    desk: Desk,
) -> None:
    def unstable(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if changed(trial) == {"layout": "parallel"} and trial.seed == 2:
            return replace(made, metrics={"loss": float("nan")})
        return made

    study = desk.run(TEXT, curve=unstable)
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.DIVERGED
    assert effects[HELPS].mean is not None
    # The other rows with a parallel layout did not diverge.
    assert effects[HELPS + 1].verdict is Verdict.HELPS
    assert "seeds diverged: a seed of the row or of row 0" in " ".join(
        study.effects_table().notes
    )


def test_without_a_whole_reference_there_is_no_verdict(desk: Desk) -> None:
    def unstable(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if not changed(trial) and trial.seed == 2:
            return replace(made, metrics={"loss": float("nan")})
        return made

    study = desk.run(TEXT, curve=unstable)
    assert {effect.withheld for effect in study.effects()} == {Withheld.DIVERGED}


def test_a_detour_gives_no_second_start(desk: Desk) -> None:
    """Another recipe is declared, and before it trains, the first one again."""
    desk.run(TEXT)
    detour = TEXT.replace("epochs: 1", "epochs: 2")
    desk.run(detour, most=0)
    study = desk.run(TEXT + "primary: [{layout: parallel}]\nmargin: 3\n")
    assert study.results().history.primary == ()
    assert study.read()[1].criterion.margin == 0.5
    desk.run(detour, most=0)
    study = desk.run(with_seeds("[0, 2, 3]"))
    assert {effect.withheld for effect in study.effects()} == {Withheld.CHANGED}


def test_a_known_row_0_counts_with_all_of_its_seeds(desk: Desk) -> None:
    """Rows beside the worst seeds of row 0 would look better than they are."""
    desk.run(TEXT.replace("  layout: [serial, parallel]\n", ""))
    study = desk.run(with_seeds("[1, 3, 4]"), "selected")
    effects = by_row(study)
    assert {effects[row].withheld for row in effects if helps(row)} == {
        Withheld.CHANGED
    }
    assert "seeds left out: 0, 2" in render(study.effects_table(), "md")


def test_an_older_store_keeps_what_it_knows(desk: Desk) -> None:
    """Revision 11 had the number of completed trials only."""
    study = desk.run(TEXT)
    desk.run(with_seeds("6"))
    before = study.results().history
    with closing(sqlite3.connect(desk.options.url)) as connection:
        drop_views(connection)
        for name in ("compared", "unfinished", "trained"):
            connection.execute(f"ALTER TABLE declarations DROP COLUMN {name}")
        connection.execute("ALTER TABLE trials DROP COLUMN vary")
        connection.execute("DROP TABLE correct_images")
        connection.execute("DROP TABLE known_trials")
        connection.execute("UPDATE alembic_version SET version_num = '0011'")
        connection.commit()
    with pytest.raises(StoreError, match="ablate run"):
        study.results()
    desk.run(with_seeds("6"))
    history = study.results().history
    assert len(history.phases) == len(before.phases) == 2
    assert history.begins[1:] == before.begins[1:]
    assert by_row(study)[HELPS].verdict is Verdict.HELPS


def test_a_declaration_without_results_is_no_placeholder(desk: Desk) -> None:
    """Another study trains the rows meanwhile; the best one must not become primary."""
    desk.run(TEXT.replace("epochs: 1", "epochs: 3"), "first", most=0)
    desk.run(TEXT, "second")
    text = with_seeds("3") + "primary: [{layout: parallel}]\n"
    study = desk.run(text, "first")
    assert {effect.withheld for effect in study.effects()} == {Withheld.KNOWN}


def test_a_baseline_that_never_completes_hides_no_results(desk: Desk) -> None:
    def unstable(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if not changed(trial):
            return replace(made, metrics={"loss": float("nan")})
        return made

    desk.run(TEXT, curve=unstable)
    swapped = TEXT.replace("ffn.kernel: [none, 3]", "ffn.kernel: [3, none]")
    study = desk.run(swapped + "primary: [{layout: parallel}]\n", curve=unstable)
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.KNOWN


def test_a_failed_trial_is_another_look_to_come(desk: Desk) -> None:
    def failing(trial: Trial, number: int) -> Epoch:
        if trial.seed == 3:
            raise RuntimeError("out of memory")
        return epoch(trial, number)

    study = desk.run(TEXT, curve=failing)
    assert by_row(study)[HELPS].withheld is Withheld.FAILED
    assert "ablate status" in render(study.effects_table(), "md")
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def test_another_full_level_is_another_comparison(desk: Desk) -> None:
    text = TEXT.replace("[0, 1]", "[0, 1, 2]") + "design: leave-one-out\n"
    desk.run(text + "full: {shortcuts.count: 1}\n")
    study = desk.run(text)
    assert len(study.results().history.phases) == 2


def test_another_control_is_another_chance_if_controls_are_primary(desk: Desk) -> None:
    desk.run(CONTROLLED)
    other = CONTROLLED.replace("iso-flops", "iso-params")
    assert len(desk.run(other).results().history.phases) == 1
    desk.run(CONTROLLED + "primary: [controls]\n", "controlled")
    study = desk.run(other + "primary: [controls]\n", "controlled")
    assert len(study.results().history.phases) == 2


def test_primary_factors_have_no_verdict_on_survivors(desk: Desk) -> None:
    def unstable(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if changed(trial) == {"layout": "parallel"} and trial.seed == 2:
            return replace(made, metrics={"loss": float("nan")})
        return made

    study = desk.run(TEXT + "primary: [layout]\n", curve=unstable)
    verdicts = {
        row["factor"]: row["verdict"] for row in study.effects_table("factors").data
    }
    assert set(verdicts.values()) == {"inconclusive"}


def test_a_rerun_of_the_same_text_keeps_the_option(desk: Desk) -> None:
    """Otherwise a plain `ablate run FILE` would be another declaration."""
    declared = space.load(TEXT, "parts.yaml")
    by_option = space.until_decided(declared, 8)
    pipeline.run(by_option, "parts.yaml", desk.options, None, SimulatedExecutor(epoch))
    study = Study("parts", desk.options.url)
    before = render(study.effects_table(), "md")
    outcome = pipeline.run(
        declared, "parts.yaml", desk.options, None, SimulatedExecutor(epoch)
    )
    assert outcome.trained == 0
    assert render(study.effects_table(), "md") == before
    assert len(study.results().history.phases) == 1
    assert "declared again" not in names(study)
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    assert shown.plan.space.seeds.looks == by_option.seeds.looks
    # A comment is no other declaration.
    study = desk.run(f"{TEXT}# as discussed\n")
    assert study.declared().seeds.looks == by_option.seeds.looks
    assert len(study.results().history.phases) == 1
    # Another text is another declaration, as it says so itself.
    study = desk.run(with_seeds("9"))
    assert study.declared().seeds.looks is None


def test_a_file_that_no_longer_adds_seeds_is_taken_at_its_word(desk: Desk) -> None:
    """Only an option may be missing by accident; the file says what its user wants."""
    study = desk.run(with_seeds("{until_decided: 8, start: 4}"))
    assert study.declared().seeds.looks is not None
    study = desk.run(with_seeds("4"))
    assert study.declared().seeds.looks is None


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("seeds: 6", "still inconclusive are tested at 0.25 % instead of 4.5 %"),
        ("seeds: 3", "(seeds left out: 3), so no row gets a verdict"),
        ("seeds: 4\nmetric: {loss: min}", "so no row gets a verdict"),
        ("seeds: 4", ""),
        ("seeds: 4\nmargin: 0.4", ""),
    ],
)
def test_a_plan_says_what_another_declaration_costs(
    desk: Desk, again: str, said: str
) -> None:
    """Before anything is declared, and not only in the table afterwards."""
    desk.run(TEXT)
    declared = space.load(TEXT.replace("seeds: 4", again), "parts.yaml")
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    assert said in "\n".join(declared_again_lines(shown))
    if "0.25 %" in said:
        assert "(changed: seeds: 4 → 6), so rows that are new" in " ".join(
            declared_again_lines(shown)
        )
    power = "\n".join(power_lines(shown))
    assert ("tested at 0.25 %" in power) == ("0.25 %" in said)
    assert bool(power) == ("no row gets a verdict" not in said)
    assert bool(said) == bool(declared_again_lines(shown))
    assert len(Study("parts", desk.options.url).results().history.phases) == 1


def test_a_plan_after_final_seeds_says_that_there_will_be_no_verdict(
    desk: Desk,
) -> None:
    desk.run(with_seeds("{final: 4}"))
    declared = space.load(with_seeds("6"), "parts.yaml")
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    (line,) = declared_again_lines(shown)
    assert line == (
        "parts has results of final seeds, so rows and factors that are added now get no"
        " verdict, and additional seeds change no verdict."
    )
    assert power_lines(shown) == []


def test_a_run_says_it_before_it_trains(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.run(TEXT)
    declared = space.load(with_seeds("6"), "parts.yaml")
    Progress().planned(
        pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    )
    assert "are tested at 0.25 % instead of 4.5 %" in capsys.readouterr().err


NEWER = {
    "data": ("split", "interpolation", "image_width"),
    "recipe": ("ema", "repeats"),
    "design": ("resolution",),
}


def test_fields_that_an_older_version_did_not_have_change_nothing(desk: Desk) -> None:
    """Otherwise each upgrade would cost every stored study most of its level."""
    study = desk.run(TEXT)
    desk.run(with_seeds("6"))
    before = study.results().history
    with closing(sqlite3.connect(desk.options.url)) as connection, connection:
        for table in ("declarations", "studies"):
            rows = connection.execute(f"SELECT id, space FROM {table}").fetchall()
            for number, text in rows:
                space_ = json.loads(text)
                del space_["vary"]
                for part, names_ in NEWER.items():
                    for name in names_:
                        space_[part].pop(name, None)
                connection.execute(
                    f"UPDATE {table} SET space = ? WHERE id = ?",
                    (json.dumps(space_), number),
                )
    study = desk.run(with_seeds("6"))
    after = study.results().history
    assert len(after.phases) == len(before.phases) == 2
    assert after.share == before.share
    found = [one.text for one in review("parts", desk.options.url)]
    assert not [text for text in found if "data" in text or "recipe" in text]
