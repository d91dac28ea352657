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
from ablate.records import Before, Epoch, Standing, Status, Trial
from ablate.report.effect import Effect
from ablate.report.effects import effects as effects_of
from ablate.report.table import render
from ablate.report.verdicts import Verdict, Withheld
from ablate.results.review import review
from ablate.results.study import Study
from ablate.scheduling.preview import Preview
from ablate.statistics import spending
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


def before(study: Study) -> Before:
    return study.results().before


def with_standing(study: Study, standing: Standing) -> set[int]:
    rows = before(study).rows
    return {row for row in by_row(study) if rows[row].standing is standing}


def shown_by(study: Study) -> dict[int, str]:
    return {row: effect.shown_by for row, effect in by_row(study).items()}


def verdicts(effects: Iterable[Effect]) -> dict[int, Verdict]:
    return {effect.row: effect.verdict for effect in effects}


@pytest.mark.proof
def test_a_study_spends_what_its_seeds_allow(desk: Desk) -> None:
    study = desk.run(TEXT)
    effect = by_row(study)[HELPS]
    assert effect.judged is not None
    assert effect.judged.level == pytest.approx(spending.spent(4))
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
    assert "later" not in said
    study = desk.run(text)
    assert stored(desk) == ["parts@1", "parts"]
    assert before(study).studies == ()
    assert by_row(study)[HELPS].verdict is Verdict.HELPS
    assert by_row(Study("parts@1", study.store))[HELPS].verdict is Verdict.HELPS


@pytest.mark.proof
def test_more_seeds_decide_more_rows(desk: Desk) -> None:
    first = by_row(desk.run(TEXT))
    said = lines(desk, with_seeds("6"))
    assert "(seeds: 4 → 6), so this is generation 2 of parts" in said
    assert "stays readable as parts@1" in said
    study = desk.run(with_seeds("6"))
    open_ = [row for row, one in first.items() if one.verdict is Verdict.INCONCLUSIVE]
    assert open_
    for row, effect in by_row(study).items():
        assert effect.judged is not None
        if row not in open_:
            # What is decided stays decided.
            assert effect.shown_by == "parts@1"
            assert effect.judged == first[row].judged
            assert len(effect.seeds) == 4
            continue
        assert effect.judged.level == pytest.approx(spending.spent(6))
        assert len(effect.seeds) == 6
    desk.run(with_seeds("8"))
    assert stored(desk) == ["parts@1", "parts@2", "parts"]
    assert len(Study("parts@1", study.store).effects()[0].seeds) == 4


@pytest.mark.proof
def test_what_is_decided_stays_decided(desk: Desk) -> None:
    """A row that four seeds decide, and the next two contradict."""

    def turns(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if helps(0) or trial.seed < 4 or not changed(trial).get("layout"):
            return made
        return replace(made, metrics={**made.metrics, "top1": made.metrics["top1"] - 9})

    desk.run(TEXT, curve=turns)
    study = desk.run(with_seeds("6"), curve=turns)
    effect = by_row(study)[HELPS]
    assert effect.verdict is Verdict.HELPS
    assert effect.shown_by == "parts@1"
    assert "helps (tested in parts@1)" in render(study.effects_table(), "md")


def test_an_added_row_is_tested_and_the_others_keep_their_verdicts(desk: Desk) -> None:
    first = by_row(desk.run(SMALLER))
    said = lines(desk, TEXT)
    assert (
        f"Row {HELPS} comes later than other rows on these seeds: 4 seeds find" in said
    )
    study = desk.run(TEXT)
    effects = by_row(study)
    for row in (1, 2, 3):
        assert effects[row].shown_by == "parts@1"
        assert effects[row].estimate == first[row].estimate
        assert effects[row].judged == first[row].judged
    assert {effects[row].shown_by for row in NEW_ROWS} == {""}
    assert effects[HELPS].verdict is Verdict.HELPS
    assert "tested in parts@1" in render(study.effects_table(), "md")


def test_a_row_that_is_added_in_a_run_is_tested_apart(desk: Desk) -> None:
    """Rows that are added because row 0 looks bad do not change what was declared."""
    desk.run(SMALLER, most=10)
    study = desk.run(TEXT)
    # The trials of the first generation end in the second one.
    assert {shown_by(study)[row] for row in (1, 2, 3)} == {"parts@1"}
    assert by_row(study)[1].withheld is None


@pytest.mark.proof
def test_rows_of_a_run_that_never_ends_are_tested_again(desk: Desk) -> None:
    """Its verdicts would wait for the rows that are left out."""
    desk.run(TEXT, most=20)
    fewer = TEXT.replace("  shortcuts.count: [0, 1]\n", "")
    study = desk.run(fewer)
    assert set(shown_by(study).values()) == {""}
    assert {effect.withheld for effect in study.effects()} == {None}


def test_a_row_that_is_added_before_results_is_one_of_the_family(desk: Desk) -> None:
    desk.run(SMALLER, most=3)
    study = desk.run(TEXT)
    assert stored(desk) == ["parts"]
    assert before(study).studies == ()
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
    for row, name in shown_by(study).items():
        assert name == ("" if row in corrected else "parts@1")


def test_new_seeds_under_a_new_name_are_the_same_comparisons(desk: Desk) -> None:
    desk.run(TEXT)
    study = desk.run(with_seeds("[4, 5, 6, 7]"), "again")
    assert before(study).studies == ()
    assert {before(study).rows[row].repeats for row in range(1, 8)} == {1}
    third = desk.run(with_seeds("[8, 9, 10, 11]"), "third")
    assert {before(third).rows[row].repeats for row in range(1, 8)} == {2}


def test_a_new_name_alone_shows_the_verdicts(desk: Desk) -> None:
    first = desk.run(TEXT)
    study = desk.run(TEXT, "renamed")
    assert set(shown_by(study).values()) == {"parts"}
    assert [one.judged for one in study.effects()] == [
        one.judged for one in first.effects()
    ]
    assert "compared elsewhere" in names(study)


def test_new_rows_with_new_seeds_have_the_full_level(desk: Desk) -> None:
    """Fresh seeds for all rows begin a new group."""
    desk.run(SMALLER)
    text = with_seeds("[4, 5, 6, 7]").replace(
        "shortcuts.count: [0, 1]", "shortcuts.count: [0, 2]"
    )
    text = text.replace("  ffn.kernel: [none, 3]\n", "")
    study = desk.run(text + "design: one-at-a-time\n", "more")
    assert before(study).studies == ()
    assert verdicts(study.effects())[1] is not Verdict.INCONCLUSIVE


def test_a_row_that_is_not_the_best_one_as_row_0_is_exploratory(desk: Desk) -> None:
    """It may be the worst of seven rows."""
    desk.run(TEXT)
    swapped = TEXT.replace("[none, 3]", "[3, none]").replace("[0, 1]", "[0, 2]")
    said = lines(desk, swapped, "other")
    assert "another row is better" in said
    study = desk.run(swapped, "other")
    assert {effect.withheld for effect in study.effects()} == {Withheld.KNOWN}
    # Rows that were trained beside it are not new.
    assert with_standing(study, Standing.KNOWN)


BEST = """
question: Does more help?
backbone: {family: vit, patch_size: 4, width: 8, depth: 2, heads: 2}
fixed: {layout: parallel}
factors:
  drop.path: [0.0, 0.1]
data: digits
recipe: {epochs: 1, warmup_epochs: 0}
seeds: 4
"""


def test_against_the_best_row_so_far_a_row_can_only_help(desk: Desk) -> None:
    text = ONE_FACTOR.replace("ffn.kernel: [none, 3]", "layout: [serial, parallel]")
    desk.run(text)
    said = lines(desk, BEST, "step")
    assert (
        "Row 1 is compared with the best row so far and can only help: 4 seeds" in said
    )

    def worse(trial: Trial, number: int) -> Epoch:
        made = epoch(trial, number)
        if "drop.path" not in trial.architecture.settings:
            return made
        return replace(made, metrics={**made.metrics, "top1": made.metrics["top1"] - 9})

    (effect,) = desk.run(BEST, "step", curve=worse).effects()
    assert effect.estimate is not None and effect.estimate.high < 0
    assert effect.verdict is Verdict.INCONCLUSIVE
    assert effect.withheld is Withheld.NOT_BETTER


def alone(kernel: str) -> str:
    """A study of row 0 alone."""
    text = TEXT.replace("[serial, parallel]", "[serial]").replace("[0, 1]", "[0]")
    text = text.replace("  ffn.kernel: [none, 3]\n", "")
    text = text.replace("factors:", f"fixed: {{ffn.kernel: {kernel}}}\nfactors:")
    return text.replace("question", "design: rows\nrows: [{}]\nquestion")


def test_a_row_0_that_was_trained_first_costs_nothing(desk: Desk) -> None:
    desk.run(alone("none"), "alone")
    assert lines(desk, TEXT) == ""
    study = desk.run(TEXT)
    assert by_row(study)[HELPS].verdict is Verdict.HELPS


def test_a_row_0_of_several_that_were_trained_alone_can_be_lucky(desk: Desk) -> None:
    for kernel in ("none", "3", "5"):
        desk.run(alone(kernel), f"alone-{kernel}")
    said = []
    for kernel in ("none", "3", "5"):
        text = TEXT.replace("[none, 3]", f"[{kernel}, 7]")
        said.append(lines(desk, text, f"from-{kernel}"))
    assert sum("can only help" in text for text in said) == 1
    assert sum("another row is better" in text for text in said) == 2


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


@pytest.mark.proof
def test_a_study_that_is_cut_short_has_no_verdict(desk: Desk) -> None:
    """Results that look well may be the reason to leave out the other seeds."""
    desk.run(with_seeds("8"), most=40)
    study = desk.run(with_seeds("5"))
    assert with_standing(study, Standing.PARTIAL) == set(range(1, 8))
    assert {effect.withheld for effect in study.effects()} == {Withheld.PARTIAL}
    again = desk.run(with_seeds("8"))
    assert by_row(again)[HELPS].verdict is Verdict.HELPS


def test_studies_of_one_row_each_are_one_group(desk: Desk) -> None:
    """Also if all are declared before any result."""
    texts = {kernel: ONE_FACTOR.replace("3]", f"{kernel}]") for kernel in (3, 5, 7)}
    for kernel, text in texts.items():
        desk.run(text, f"kernel-{kernel}", most=0)
    for kernel, text in texts.items():
        desk.run(text, f"kernel-{kernel}")
    with Reader(desk.options.url) as reader:
        results = reader.studies.results("kernel-7")
    assert [one.name for one in results.before.studies] == ["kernel-3", "kernel-5"]


@pytest.mark.proof
def test_rows_that_are_dropped_still_count(desk: Desk) -> None:
    desk.run(TEXT)
    fewer = TEXT.replace("  shortcuts.count: [0, 1]\n", "")
    assert set(shown_by(desk.run(fewer)).values()) == {"parts@1"}
    study = desk.run(fewer.replace("seeds: 4", "seeds: 6"))
    open_ = {row: one for row, one in by_row(study).items() if not one.shown_by}
    assert open_
    new = replace(study.results(), before=Before())
    for effect in effects_of(new, 0.5):
        if effect.row in open_:
            p, alone = open_[effect.row].p_adjusted, effect.p_adjusted
            assert p is not None and alone is not None
            assert p >= alone


def test_rows_are_primary_only_if_they_were_named_before_results(desk: Desk) -> None:
    primary = f"{TEXT}primary: [{{layout: parallel}}]\n"
    desk.run(TEXT)
    study = desk.run(primary)
    assert not any(effect.primary for effect in study.effects())
    assert set(shown_by(study).values()) == {"parts@1"}


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
    desk.run(with_seeds("6"), most=1)
    study = desk.run(TEXT)
    assert before(study).studies == ()
    assert stored(desk) == ["parts"]


def test_a_pilot_with_one_seed_shows_nothing(desk: Desk) -> None:
    desk.run(with_seeds("1"))
    study = desk.run(TEXT)
    assert before(study).studies == ()
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
        shown = preview(desk, text, "other").before
        made = before(desk.run(text, "other"))
        assert shown.rows == made.rows
        assert shown.generation == made.generation
        assert len(shown.studies) == len(made.studies)


def test_a_run_says_it_before_it_trains(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.run(TEXT)
    Progress().planned(preview(desk, with_seeds("6")))
    assert "so this is generation 2 of parts" in capsys.readouterr().err


def test_a_plan_with_few_seeds_says_what_more_seeds_of_row_0_gain(desk: Desk) -> None:
    shown = "\n".join(power_lines(preview(desk, TEXT)))
    (found,) = re.findall(r"\n  4 seeds: ([\d.]+) sd", shown)
    (more,) = re.findall(r"\n  4 seeds, 8 of row 0: ([\d.]+) sd", shown)
    assert float(more) < float(found)
    assert "(seeds: {count: 4, baseline: 8}, 4 more trials)" in shown
    assert power_lines(preview(desk, with_seeds("8"))) == []
    assert "12 seeds" in "\n".join(
        power_lines(preview(desk, with_seeds("8")), details=True)
    )


@pytest.mark.proof
def test_looks_of_a_changed_study_are_those_of_its_table(desk: Desk) -> None:
    """While seeds are added, verdicts are those of the later table."""
    desk.run(with_seeds("3"))
    text = with_seeds("{until_decided: 9, start: 3, step: 3}")
    study = desk.run(text)
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


def test_imported_comparisons_count(desk: Desk, tmp_path: Path) -> None:
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(with_seeds("[4, 5, 6, 7]"), "colleague")
    mine = desk.run(TEXT)
    import_studies(there.options.url, desk.options.url)
    assert before(Study("colleague", mine.store)).rows[HELPS].repeats == 0
    assert before(mine).rows[HELPS].repeats == 1


def test_imported_studies_on_the_same_seeds_are_one_group(
    desk: Desk, tmp_path: Path
) -> None:
    there = Desk(Options(runs=tmp_path / "there", cpus=1))
    there.run(SMALLER, "colleague")
    mine = desk.run(ONE_FACTOR.replace("3]", "5]"))
    import_studies(there.options.url, desk.options.url)
    assert [one.name for one in before(mine).studies] == ["colleague"]


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
    assert "State the earlier generations" in text
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
