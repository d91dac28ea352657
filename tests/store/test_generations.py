"""What becomes of a study whose file changes, by steps that users take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from ablate import pipeline, space
from ablate.cli.generations import generation_lines
from ablate.cli.power import power_lines
from ablate.cli.progress import Progress
from ablate.errors import UnknownName
from ablate.execution.simulated import SimulatedExecutor
from ablate.own import registry
from ablate.pipeline import Options
from ablate.records import Epoch, Standing, Status, Trial
from ablate.report.effect import Effect
from ablate.report.factorial import Factorial
from ablate.report.table import render
from ablate.report.verdicts import Verdict, Withheld
from ablate.results.review import review
from ablate.results.study import Study
from ablate.scheduling.preview import Preview
from ablate.store.other_store import import_studies
from ablate.store.reader import Reader
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

SMALLER = TEXT.replace("  layout: [serial, parallel]\n", "")
# The rows with `layout: parallel`, which helps.
NEW_ROWS = {row for row in range(1, 8) if helps(row)}
ONE_FACTOR = SMALLER.replace("  shortcuts.count: [0, 1]\n", "")
FINAL = with_seeds("{final: 4}")


@pytest.fixture
def desk(options: Options) -> Desk:
    return Desk(options)


def stored(desk: Desk) -> list[str]:
    with Reader(desk.options.url) as reader:
        return [study.name for study in reader.studies.all()]


def preview(desk: Desk, text: str, name: str = "parts") -> Preview:
    declared = space.load(text, f"{name}.yaml")
    return pipeline.preview(declared, desk.options.url, desk.options, probe=False)


def lines(desk: Desk, text: str, name: str = "parts") -> str:
    return "\n".join(generation_lines(preview(desk, text, name)))


def level(study: Study) -> float:
    return study.results().generation.level


def with_standing(study: Study, standing: Standing) -> set[int]:
    generation = study.results().generation
    return {row for row in by_row(study) if generation.standing(row) is standing}


def verdicts(effects: Iterable[Effect]) -> dict[int, Verdict]:
    return {effect.row: effect.verdict for effect in effects}


@pytest.mark.proof
def test_new_comparisons_have_the_full_level(desk: Desk) -> None:
    study = desk.run(TEXT)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.04)
    assert effect.verdict is Verdict.HELPS
    assert "enerations" not in render(study.effects_table(), "md")


SAME = {
    "another question": TEXT.replace("Which part helps?", "Which one?"),
    "a comment": f"{TEXT}# as discussed\n",
    "labels": f"{TEXT}labels: {{layout: order}}\n",
    "another order of levels": TEXT.replace("[none, 3]", "[3, none]")
    + "baseline: {ffn.kernel: none}\n",
    "another margin": f"{TEXT}margin: 3\n",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME)
def test_a_change_that_compares_the_same_makes_no_generation(
    desk: Desk, text: str
) -> None:
    desk.run(TEXT)
    assert "generation" not in lines(desk, text)
    study = desk.run(text)
    assert stored(desk) == ["parts"]
    assert level(study) == pytest.approx(0.04)
    found = [effect.verdict for effect in study.effects()]
    assert found.count(Verdict.HELPS) == 4


def test_another_margin_decides_what_no_difference_means(desk: Desk) -> None:
    """An interval rules out what it excludes, whatever margin is chosen afterwards."""
    study = desk.run(TEXT)
    wide = verdicts(study.effects(margin=3))
    narrow = verdicts(study.effects(margin=0.01))
    assert Verdict.SAME in wide.values()
    assert Verdict.SAME not in narrow.values()
    assert [row for row in wide if wide[row] is Verdict.HELPS] == [
        row for row in narrow if narrow[row] is Verdict.HELPS
    ]


def test_rows_that_get_other_numbers_keep_what_refers_to_them(desk: Desk) -> None:
    text = TEXT.replace("layout: [serial, parallel]", "ffn.kernel: [none, 3]").replace(
        "ffn.kernel: [none, 3]\ndata", "layout: [serial, parallel]\ndata"
    )
    desk.run(TEXT)
    shown = desk.run(TEXT, "shown")
    before = [effect.judged for effect in shown.effects()]
    moved = desk.run(text)
    assert stored(desk) == ["shown", "parts"]
    assert by_row(moved)[HELPS].verdict is not Verdict.HELPS
    assert [effect.judged for effect in shown.effects()] == before


NEW = {
    "a smoke test first": TEXT.replace("epochs: 1", "epochs: 2"),
    "other data": TEXT.replace("data: digits", "data: {name: digits, validation: 0.1}"),
    "another recipe": TEXT.replace("epochs: 1", "epochs: 1, weight_decay: 0.2"),
    "another backbone": TEXT.replace("width: 8", "width: 12"),
}


@pytest.mark.proof
@pytest.mark.parametrize("text", NEW.values(), ids=NEW)
def test_other_trials_are_other_comparisons(desk: Desk, text: str) -> None:
    desk.run(TEXT)
    said = lines(desk, text)
    assert "this is generation 2 of parts" in said
    assert "tested at" not in said
    study = desk.run(text)
    assert stored(desk) == ["parts@1", "parts"]
    assert level(study) == pytest.approx(0.04)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS
    assert by_row(Study("parts@1", study.store))[HELPS].verdict is Verdict.HELPS


@pytest.mark.proof
def test_more_seeds_are_tested_at_half_of_what_is_left(desk: Desk) -> None:
    desk.run(TEXT)
    said = lines(desk, with_seeds("6"))
    assert "(seeds: 4 → 6), so this is generation 2 of parts" in said
    assert "stays readable as parts@1" in said
    assert "are tested at 0.5 % instead of 4 %" in said
    assert "compared before, in parts" in said
    assert "tested at 0.5 %" in "\n".join(power_lines(preview(desk, with_seeds("6"))))
    study = desk.run(with_seeds("6"))
    assert level(study) == pytest.approx(0.005)
    table = render(study.effects_table(), "md")
    assert "Rows are tested at 0.5 % instead of 4 %" in table
    # An interval states the level that it has.
    assert "Δ (99.5 % interval)" in table
    assert "with its 99.5 % interval" in table
    assert "95 % interval" in render(
        Study("parts@1", study.store).effects_table(), "md"
    )
    for effect in study.effects():
        assert effect.judged is not None
        assert effect.judged.level == pytest.approx(0.005)
        assert len(effect.seeds) == 6
    assert level(desk.run(with_seeds("8"))) == pytest.approx(0.0025)
    assert stored(desk) == ["parts@1", "parts@2", "parts"]
    assert len(Study("parts@1", study.store).effects()[0].seeds) == 4


@pytest.mark.proof
def test_an_earlier_verdict_stands_beside_a_later_one(desk: Desk) -> None:
    """A row that four seeds decide, and the next two contradict."""

    def turns(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if helps(0) or trial.seed < 4 or not changed(trial).get("layout"):
            return made
        return replace(made, metrics={**made.metrics, "top1": made.metrics["top1"] - 9})

    desk.run(TEXT, curve=turns)
    study = desk.run(with_seeds("6"), curve=turns)
    effect = by_row(study)[HELPS]
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert [(one.study, one.verdict, one.seeds) for one in effect.before] == [
        ("parts@1", Verdict.HELPS, 4)
    ]
    assert "(parts@1, 4 seeds: helps)" in render(study.effects_table(), "md")
    assert effect.estimate is not None
    assert effect.estimate.low < 0 < effect.estimate.high


def test_an_added_row_is_tested_and_the_others_keep_their_verdicts(desk: Desk) -> None:
    first = desk.run(SMALLER)
    before = {effect.row: effect for effect in first.effects()}
    said = lines(desk, TEXT)
    assert (
        "are tested at 0.5 % instead of 4 %, because results of row 0 are known" in said
    )
    assert "not tested again: parts has the same trials" in said
    assert "Seeds that row 0 does not have yet" in said
    study = desk.run(TEXT)
    assert with_standing(study, Standing.SHOWN) == {1, 2, 3}
    assert with_standing(study, Standing.TESTED) == NEW_ROWS
    effects = by_row(study)
    for row in (1, 2, 3):
        assert effects[row].shown_by == "parts@1"
        assert effects[row].estimate == before[row].estimate
        assert effects[row].judged == before[row].judged
    assert effects[HELPS].verdict is Verdict.HELPS
    assert "tested in parts@1" in render(study.effects_table(), "md")


def test_a_row_that_is_added_in_a_run_is_tested_apart(desk: Desk) -> None:
    """Rows that are added because row 0 looks bad do not change what was declared."""
    desk.run(SMALLER, most=10)
    study = desk.run(TEXT)
    assert with_standing(study, Standing.SHOWN) == {1, 2, 3}
    assert level(study) == pytest.approx(0.005)
    assert level(Study("parts@1", study.store)) == pytest.approx(0.04)
    # The trials of the first generation end in the second one.
    assert by_row(study)[1].withheld is None


@pytest.mark.proof
def test_rows_of_a_run_that_never_ends_are_tested_again(desk: Desk) -> None:
    """Its verdicts would wait for the rows that are left out."""
    desk.run(TEXT, most=20)
    fewer = TEXT.replace("  shortcuts.count: [0, 1]\n", "")
    study = desk.run(fewer)
    assert with_standing(study, Standing.TESTED) == {1, 2, 3}
    assert level(study) == pytest.approx(0.005)
    assert study.results().generation.left_out == 4
    assert {effect.withheld for effect in study.effects()} == {None}


def test_a_row_that_is_added_before_results_is_one_of_the_family(desk: Desk) -> None:
    desk.run(SMALLER, most=3)
    study = desk.run(TEXT)
    assert stored(desk) == ["parts"]
    assert level(study) == pytest.approx(0.04)
    assert with_standing(study, Standing.TESTED) == set(range(1, 8))


@pytest.mark.proof
def test_a_corrected_variant_is_an_added_row(desk: Desk, tmp_path: Path) -> None:
    page = Path(__file__).parents[2].joinpath("docs/own.md").read_text()
    (code,) = re.findall(
        r"```python file=scale.py\n(\"\"\"A constant on.*?)```", page, re.DOTALL
    )
    file = tmp_path / "mine.py"
    text = TEXT.replace("  ffn.kernel: [none, 3]\n", "  scale: [1, 0.5]\n")
    for version in ("", "", "CORRECTED = True\n"):
        file.write_text(code + version)
        registry.clear()
        registry.load_file(file)
        study = desk.run(text)
    registry.clear()
    assert stored(desk) == ["parts@1", "parts"]
    corrected = {effect.row for effect in study.effects() if "scale" in effect.changed}
    assert with_standing(study, Standing.TESTED) == corrected
    assert with_standing(study, Standing.SHOWN) == set(range(1, 8)) - corrected
    assert level(study) == pytest.approx(0.005)


def test_new_seeds_under_a_new_name_are_the_same_comparisons(desk: Desk) -> None:
    desk.run(TEXT)
    text = with_seeds("[4, 5, 6, 7]")
    assert "compared before, in parts" in lines(desk, text, "again")
    study = desk.run(text, "again")
    assert level(study) == pytest.approx(0.005)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS
    assert "compared elsewhere" in names(study)
    third = desk.run(with_seeds("[8, 9, 10, 11]"), "third")
    assert level(third) == pytest.approx(0.0025)


def test_a_new_name_alone_shows_the_verdicts(desk: Desk) -> None:
    first = desk.run(TEXT)
    study = desk.run(TEXT, "renamed")
    assert with_standing(study, Standing.SHOWN) == set(range(1, 8))
    assert [one.judged for one in study.effects()] == [
        one.judged for one in first.effects()
    ]
    # It tests nothing, so the next generation has the same level as without it.
    assert level(desk.run(with_seeds("6"))) == pytest.approx(0.005)


def test_new_rows_with_new_seeds_have_the_full_level(desk: Desk) -> None:
    """What a plan advises to somebody who adds rows."""
    desk.run(SMALLER)
    text = with_seeds("[4, 5, 6, 7]").replace(
        "shortcuts.count: [0, 1]", "shortcuts.count: [0, 2]"
    )
    text = text.replace("  ffn.kernel: [none, 3]\n", "")
    study = desk.run(text + "design: one-at-a-time\n", "more")
    assert level(study) == pytest.approx(0.04)
    assert verdicts(study.effects())[1] is not Verdict.INCONCLUSIVE


def test_a_variant_that_becomes_row_0_has_the_next_level(desk: Desk) -> None:
    desk.run(TEXT)
    swapped = TEXT.replace("[none, 3]", "[3, none]").replace("[0, 1]", "[0, 2]")
    said = lines(desk, swapped, "other")
    assert "tested at 0.5 % instead of 4 %, because results of row 0 are known" in said
    study = desk.run(swapped, "other")
    assert level(study) == pytest.approx(0.005)
    # It may be the worst of seven rows, so the others count.
    assert study.results().generation.left_out == 6
    # Rows that were trained beside it are not new.
    assert with_standing(study, Standing.KNOWN)


def test_a_row_0_that_was_trained_alone_has_the_next_level(desk: Desk) -> None:
    """It may be the best of many."""
    alone = TEXT.replace("[serial, parallel]", "[serial]")
    alone = alone.replace("[0, 1]", "[0]").replace("[none, 3]", "[none]")
    alone = alone.replace("question", "design: rows\nrows: [{}]\nquestion")
    assert "No row is compared with row 0 yet" in lines(desk, alone, "alone")
    desk.run(alone, "alone")
    assert level(desk.run(TEXT)) == pytest.approx(0.005)


OTHER_ROW_0 = TEXT.replace("[serial, parallel]", "[parallel, serial]")


@pytest.mark.parametrize("name", ["parts", "other"])
def test_another_row_0_of_known_rows_is_exploratory(desk: Desk, name: str) -> None:
    desk.run(TEXT)
    assert "exploratory: results were known" in lines(desk, OTHER_ROW_0, name)
    study = desk.run(OTHER_ROW_0, name)
    assert {effect.withheld for effect in study.effects()} == {Withheld.KNOWN}


def test_another_metric_is_exploratory(desk: Desk) -> None:
    desk.run(TEXT)
    text = f"{TEXT}metric: {{loss: min}}\n"
    assert "exploratory: results were known" in lines(desk, text)
    study = desk.run(text)
    assert {effect.withheld for effect in study.effects()} == {Withheld.KNOWN}
    assert "known before" in names(study)


@pytest.mark.parametrize("seeds", ["[0, 2, 3]", "3", "[0, 1, 2, 5, 6]"])
def test_seeds_cannot_be_chosen(desk: Desk, seeds: str) -> None:
    desk.run(TEXT)
    text = with_seeds(seeds)
    assert "are left out; declare all of them" in lines(desk, text)
    study = desk.run(text)
    assert {effect.withheld for effect in study.effects()} == {Withheld.PARTIAL}
    assert "seeds left out" in names(study)
    # As it was declared first, it shows its verdicts again.
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def test_a_known_row_0_counts_with_all_of_its_seeds(desk: Desk) -> None:
    desk.run(SMALLER)
    study = desk.run(with_seeds("[1, 3]"), "selected")
    effects = by_row(study)
    assert {effects[row].withheld for row in NEW_ROWS} == {Withheld.PARTIAL}


def test_levels_add_up_over_studies_with_another_row_0(desk: Desk) -> None:
    """A row of a lineage that becomes row 0 continues it: its level is not new."""
    steps = (
        ("[none, 3]", "3"),
        ("[none, 3, 5]", "[3, 4, 5]"),
        ("[5, 7]", "[3, 4, 5]"),
        ("[5, 7]", "[6, 7, 8]"),
        ("[5, 7]", "[9, 10, 11]"),
    )
    levels = []
    for number, (kernels, seeds) in enumerate(steps):
        text = ONE_FACTOR.replace("[none, 3]", kernels).replace("4\n", f"{seeds}\n")
        levels.append(level(desk.run(text, f"step-{number}")))
    assert levels == pytest.approx([0.04, 0.005, 0.0025, 0.00125, 0.000625])


@pytest.mark.proof
def test_a_study_that_is_cut_short_has_no_verdict(desk: Desk) -> None:
    """Results that look well may be the reason to leave out the other seeds."""
    desk.run(with_seeds("8"), most=40)
    study = desk.run(with_seeds("5"))
    assert with_standing(study, Standing.PARTIAL) == set(range(1, 8))
    again = desk.run(with_seeds("8"))
    assert with_standing(again, Standing.SHOWN) == set(range(1, 8))
    assert by_row(again)[HELPS].verdict is Verdict.HELPS


def test_a_lucky_row_0_has_used_the_first_level_in_every_study(desk: Desk) -> None:
    alone = ONE_FACTOR.replace("[none, 3]", "[none]")
    desk.run(alone.replace("question", "design: rows\nrows: [{}]\nquestion"), "alone")
    levels = []
    for kernel in (3, 5, 7):
        text = ONE_FACTOR.replace("3]", f"{kernel}]")
        levels.append(level(desk.run(text, f"kernel-{kernel}")))
    assert levels == pytest.approx([0.005, 0.0025, 0.00125])


def test_a_study_whose_verdicts_another_one_shows_is_kept(desk: Desk) -> None:
    desk.run(TEXT, "first", most=0)
    desk.run(TEXT, "second", most=0)
    desk.run(SMALLER, "first")
    second = desk.run(TEXT, "second")
    assert stored(desk).count("first@1") == 1
    assert {effect.shown_by for effect in by_row(second).values()} == {"first@1"}


@pytest.mark.proof
def test_rows_that_are_dropped_still_count(desk: Desk) -> None:
    desk.run(TEXT)
    fewer = TEXT.replace("  shortcuts.count: [0, 1]\n", "")
    study = desk.run(fewer)
    # Nothing is tested, so nothing is spent.
    assert with_standing(study, Standing.SHOWN) == {1, 2, 3}
    study = desk.run(fewer.replace("seeds: 4", "seeds: 6"))
    assert level(study) == pytest.approx(0.005)
    assert study.results().generation.left_out == 4
    assert "adjusted for 4 more comparisons" in render(study.effects_table(), "md")
    # Under another name they count too.
    study = desk.run(fewer.replace("seeds: 4", "seeds: 8"), "other")
    assert study.results().generation.left_out == 4
    assert level(study) == pytest.approx(0.0025)


def test_rows_are_primary_only_if_they_were_named_before_results(desk: Desk) -> None:
    primary = f"{TEXT}primary: [{{layout: parallel}}]\n"
    desk.run(TEXT)
    study = desk.run(primary)
    assert not any(effect.primary for effect in study.effects())
    assert with_standing(study, Standing.SHOWN) == set(range(1, 8))


def test_final_seeds_have_the_whole_level(desk: Desk) -> None:
    study = desk.run(FINAL)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(0.05)
    undecided = [one for one in study.effects() if one.verdict is Verdict.INCONCLUSIVE]
    assert undecided
    # Further seeds would give no verdict, so none are recommended.
    assert {one.further for one in undecided} == {None}


@pytest.mark.parametrize("seeds", ["6", "{final: 6}"])
def test_what_is_added_to_final_seeds_has_no_verdict(desk: Desk, seeds: str) -> None:
    desk.run(FINAL)
    said = lines(desk, with_seeds(seeds))
    assert "final seeds, which used the whole level" in said
    assert power_lines(preview(desk, with_seeds(seeds))) == []
    study = desk.run(with_seeds(seeds))
    effects = by_row(study)
    assert {effect.withheld for effect in effects.values()} == {Withheld.FINAL}
    assert effects[HELPS].before[0].verdict is Verdict.HELPS
    results, declared = study.read()
    model = Factorial(results, declared.factors.baseline)
    terms = [*model.main_effects(0.5, "max"), *model.interactions(0.5, "max")]
    assert {one.judged.withheld for one in terms if one.judged} == {Withheld.FINAL}


def test_seeds_that_become_final_after_results_do_not_gain(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("{final: 6}"))
    assert level(study) == pytest.approx(0.005)


def test_final_seeds_after_a_pilot_have_the_first_level(desk: Desk) -> None:
    """With a single seed, too, the rows that look best can be chosen."""
    desk.run(with_seeds("1"))
    assert "`final` has no effect" in lines(desk, FINAL)
    assert level(desk.run(FINAL)) == pytest.approx(0.04)


def test_verdicts_are_taken_when_all_trials_have_ended(desk: Desk) -> None:
    """Otherwise a run could be stopped when it looks well."""
    study = desk.run(TEXT, most=28)
    effect = by_row(study)[HELPS]
    assert len(effect.seeds) >= 3
    assert effect.withheld is Withheld.UNFINISHED
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert "trials unfinished" in render(study.effects_table(), "md")
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def test_a_declaration_without_results_is_replaced(desk: Desk) -> None:
    desk.run(FINAL, most=1)
    study = desk.run(TEXT)
    assert level(study) == pytest.approx(0.04)
    assert stored(desk) == ["parts"]


def test_a_pilot_with_one_seed_shows_nothing(desk: Desk) -> None:
    desk.run(with_seeds("1"))
    study = desk.run(TEXT)
    assert level(study) == pytest.approx(0.04)
    assert stored(desk) == ["parts"]


def test_known_rows_beside_a_new_row_0_are_exploratory(desk: Desk) -> None:
    """The best of them would seem to help."""
    other = TEXT.replace("[serial, parallel]", "[parallel]")
    other = other.replace("  ffn.kernel: [none, 3]\n", "")
    rows = "rows: [{layout: parallel}, {layout: parallel, shortcuts.count: 1}]\n"
    desk.run(f"{other}design: rows\n{rows}", "other")
    study = desk.run(TEXT)
    assert with_standing(study, Standing.KNOWN) == {4, 6}


def test_a_plan_says_what_the_run_stores(desk: Desk) -> None:
    desk.run(SMALLER)
    for text in (TEXT, with_seeds("6"), with_seeds("3"), OTHER_ROW_0):
        shown = preview(desk, text, "other").generation
        study = desk.run(text, "other")
        made = study.results().generation
        assert shown.level == made.level
        assert shown.left_out == made.left_out
        assert {row: one for row, one in shown.rows.items() if row} == {
            row: one for row, one in made.rows.items() if row
        }


def test_a_run_says_it_before_it_trains(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.run(TEXT)
    Progress().planned(preview(desk, with_seeds("6")))
    assert "are tested at 0.5 % instead of 4 %" in capsys.readouterr().err


def test_a_first_plan_says_how_seeds_can_be_added(desk: Desk) -> None:
    shown = "\n".join(power_lines(preview(desk, TEXT)))
    assert "until_decided" in shown


@pytest.mark.proof
def test_looks_of_a_changed_study_are_those_of_its_table(desk: Desk) -> None:
    """While seeds are added, verdicts are those of the later table."""
    desk.run(with_seeds("3"))
    text = with_seeds("{until_decided: 9, start: 3, step: 3}")
    study = desk.run(text)
    assert level(study) == pytest.approx(0.005)
    seeds = {row: len(effect.seeds) for row, effect in by_row(study).items()}
    decided = {row for row, one in by_row(study).items() if one.verdict.startswith("h")}
    assert decided >= {HELPS}
    given_up = {row for row, one in by_row(study).items() if one.is_given_up}
    assert all(seeds[row] == 9 for row in seeds if row not in decided | given_up)


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
    assert stored(desk) == ["parts"]
    shown = pipeline.preview(declared, desk.options.url, desk.options, probe=False)
    assert shown.plan.space.seeds.looks == by_option.seeds.looks
    # Another text is another declaration, as it says so itself.
    study = desk.run(with_seeds("9"))
    assert study.declared().seeds.looks is None


def test_proposals_of_a_longer_search_may_be_known(desk: Desk) -> None:
    search = "strategy: {name: brute-force, cells: 3}\n"
    desk.run(TEXT + search)
    desk.run(TEXT, "other")
    study = desk.run(TEXT + search.replace("3", "7"))
    assert stored(desk) == ["parts@1", "other", "parts"]
    effects = by_row(study)
    assert len(effects) > 3
    assert effects[HELPS].shown_by == "other"


@pytest.mark.proof
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


def fails_at(row: int, seed: int) -> Curve:
    """Fails one trial of the row with only `layout` changed."""
    assert row == HELPS

    def curve(trial: Trial, number: int) -> Epoch:
        if changed(trial) == {"layout": "parallel"} and trial.seed == seed:
            raise RuntimeError("out of memory")
        return epoch(trial, number)

    return curve


@pytest.mark.proof
def test_a_row_with_a_failed_trial_waits_alone(desk: Desk) -> None:
    study = desk.run(TEXT, curve=fails_at(row=HELPS, seed=3))
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.FAILED
    assert effects[HELPS].estimate is not None
    assert effects[HELPS + 1].verdict is Verdict.HELPS
    assert "ablate status" in render(study.effects_table(), "md")
    assert by_row(desk.run(TEXT))[HELPS].verdict is Verdict.HELPS


def diverges_at(levels: dict[str, object], seed: int) -> Curve:
    def curve(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if changed(trial) == levels and trial.seed == seed:
            return replace(made, metrics={"loss": float("nan")})
        return made

    return curve


@pytest.mark.proof
def test_there_is_no_verdict_on_survivors(desk: Desk) -> None:
    study = desk.run(TEXT, curve=diverges_at({"layout": "parallel"}, 2))
    effects = by_row(study)
    assert effects[HELPS].withheld is Withheld.DIVERGED
    assert effects[HELPS].mean is not None
    # The other rows with a parallel layout did not diverge.
    assert effects[HELPS + 1].verdict is Verdict.HELPS
    # A declaration without the diverged seed leaves it out.
    study = desk.run(with_seeds("[0, 1, 3]"))
    assert by_row(study)[HELPS].withheld is Withheld.PARTIAL


def test_without_a_whole_reference_there_is_no_verdict(desk: Desk) -> None:
    study = desk.run(TEXT, curve=diverges_at({}, 2))
    assert {effect.withheld for effect in study.effects()} == {Withheld.DIVERGED}


def test_pruned_seeds_leave_survivors(desk: Desk) -> None:
    import sqlite3
    from contextlib import closing

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


def test_an_imported_study_brings_its_generations(desk: Desk, tmp_path: Path) -> None:
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(TEXT)
    whole = there.run(with_seeds("6"))
    import_studies(there.options.url, desk.options.url)
    study = Study("parts", desk.options.url)
    assert stored(desk) == ["parts@1", "parts"]
    assert study.effects() == whole.effects()
    assert level(desk.run(with_seeds("8"))) == pytest.approx(0.0025)


def test_imported_comparisons_share_a_level(desk: Desk, tmp_path: Path) -> None:
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(with_seeds("[4, 5, 6, 7]"), "colleague")
    mine = desk.run(TEXT)
    import_studies(there.options.url, desk.options.url)
    assert level(Study("colleague", mine.store)) == pytest.approx(0.04)
    assert level(mine) == pytest.approx(0.005)
    assert by_row(mine)[HELPS].withheld is None


def test_a_study_that_two_machines_share_keeps_its_verdicts(
    desk: Desk, tmp_path: Path
) -> None:
    """The one that declares it later imports what the other has trained before."""
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(TEXT)
    study = desk.run(TEXT, most=3)
    import_studies(there.options.url, desk.options.url)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS


def test_a_review_lists_the_generations(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("6"))
    (text,) = [
        one.text for one in review("parts", study.store) if one.name == "generations"
    ]
    assert "parts: seeds: 4 → 6" in text
    assert "tested at 0.5 %, which is half of what was left of 5 %" in text
    assert "generations" not in names(Study("parts@1", study.store))


def test_a_retired_generation_has_a_view_of_its_own(desk: Desk) -> None:
    desk.run(TEXT)
    desk.run(with_seeds("6"))
    with Reader(desk.options.url) as reader:
        _, rows = reader.query("SELECT count(*) FROM results_parts")
        _, before = reader.query("SELECT count(*) FROM results_parts_1")
    assert rows == [(48,)]
    assert before == [(32,)]


def test_an_unknown_generation_is_named(desk: Desk) -> None:
    desk.run(TEXT, "a@b")
    desk.run(with_seeds("6"), "a@b")
    with Reader(desk.options.url) as reader:
        # No study has the sign in a name of its own.
        assert [name for name, _ in reader.studies.generations("a-b")] == [
            "a-b@1",
            "a-b",
        ]
        with pytest.raises(UnknownName, match="newest generation is a-b, .* a-b@1"):
            reader.studies.get("a-b@2")


def test_primary_after_results_has_no_effect(desk: Desk) -> None:
    desk.run(TEXT)
    text = f"{TEXT}primary: [{{layout: parallel}}]\n"
    assert "`primary` has no effect" in lines(desk, text)


def test_diverged_and_pruned_are_the_only_ends_without_a_value() -> None:
    """A new one needs a reason of its own."""
    from ablate.records import RESOLVED
    from ablate.report.effects import SURVIVORS

    assert set(RESOLVED) == {Status.COMPLETED, Status.FAILED, *SURVIVORS}


@pytest.mark.proof
def test_a_plan_proposes_seeds_of_row_0_if_they_find_more(desk: Desk) -> None:
    def shown(seeds: str, *, splits: bool = True) -> str:
        return "\n".join(power_lines(preview(desk, with_seeds(seeds)), splits=splits))

    (found,) = re.findall(r"\n  8 seeds: ([\d.]+) sd", shown("8"))
    same = r"the same 64 trials as seeds: {count: 7, baseline: 15}: ([\d.]+) sd"
    (split,) = re.findall(same, shown("8"))
    assert float(split) < float(found)
    (declared,) = re.findall(
        r"  7 seeds: ([\d.]+) sd \(15 of row 0\)", shown("{count: 7, baseline: 15}")
    )
    assert declared == split
    # With few seeds, no split finds a smaller difference.
    assert "baseline" not in shown("4")
    assert "baseline" not in shown("8", splits=False)
