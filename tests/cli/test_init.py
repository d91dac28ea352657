"""`ablate init`: what it writes can be planned and trained as it is, and names only
what exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jsonschema
import pytest

from ablate import diagnostics, factors, pipeline, space
from ablate.cli.init import TEMPLATE, examples
from ablate.data import SETS
from ablate.pipeline import Options
from ablate.records import Design, Recipe, Scheduler, Strategy
from ablate.space.recipes import RECIPES
from ablate.space.schema import SpaceForm
from ablate.text.document import parse
from tests.conftest import RunText, Say

TEXT = TEMPLATE.read_text(encoding="utf-8")
# Lines of keys that are off, without their `#`, with their keys.
OFF = dict(re.findall(r"^#((\w+): .*)$", TEXT, re.MULTILINE))
# What else has to change for a key to be read.
# What the template declares; a search, and sizes, have the same seeds in all rows.
SEEDS = "seeds: {count: 3, baseline: 6}"
BESIDE = {
    "full": {"design": "leave-one-out"},
    "rows": {"design": "rows"},
    "strategy": {"design": None},
    "published": {"design": "rows"},
}


def words_of(record: type, name: str) -> tuple[str, ...]:
    return get_args(get_type_hints(record)[name])


def test_the_space_that_is_written_plans_and_trains(
    say: Say, run_text: RunText
) -> None:
    code, out, err = say("init")
    assert (code, out) == (0, "")
    assert (
        err == "wrote space.yaml. Next: ablate plan space.yaml, then: ablate run"
        " space.yaml\n"
    )
    assert Path("space.yaml").read_text(encoding="utf-8") == TEXT
    assert say("plan", "space.yaml")[0] == 0
    assert run_text(TEXT).trained == 15


def test_its_study_is_named_as_its_commands_say(say: Say) -> None:
    assert say("init", "mine")[0] == 0
    text = Path("mine.yaml").read_text(encoding="utf-8")
    assert space.load(text, "mine.yaml").name == "mine"
    assert "ablate run mine.yaml " in text
    assert "ablate effects mine " in text
    assert "space.yaml" not in text


def test_the_space_fits_the_schema_and_names_every_key() -> None:
    values = parse(TEXT, "space.yaml").values
    jsonschema.validate(values, space.json_schema())
    # A trainer of one's own replaces other keys; a comment says so.
    assert "trainer: NAME" in TEXT
    # A classifier has no other head.
    assert "head: NAME" in TEXT
    named = set(values) | set(OFF.values()) | {"trainer", "head"}
    assert named == set(SpaceForm.model_fields)
    assert not set(values) & set(OFF.values())


@pytest.mark.proof
@pytest.mark.parametrize("line", OFF, ids=OFF.get)
def test_each_key_that_is_off_can_be_switched_on(line: str) -> None:
    values: dict[str, Any] = (
        parse(TEXT, "space.yaml").values | parse(line, "line").values
    )
    if OFF[line] == "published":
        values["rows"] = [{}, {"shortcuts.count": 2}, {"ffn.kernel": 3}]
    values |= BESIDE.get(OFF[line], {})
    kept = {key: value for key, value in values.items() if value is not None}
    jsonschema.validate(kept, space.json_schema())
    text = re.sub(
        r"^design: .*\n",
        "" if "design" not in kept else f"design: {kept['design']}\n",
        TEXT,
        flags=re.MULTILINE,
    )
    text = re.sub(rf"^#{OFF[line]}: ", f"{OFF[line]}: ", text, flags=re.MULTILINE)
    text = (
        text
        if OFF[line] != "published"
        else re.sub(r"^#rows: ", "rows: ", text, flags=re.MULTILINE)
    )
    text = (
        text
        if OFF[line] != "teacher"
        else text.replace("recipe: {", "recipe: {distillation: hard, ")
    )
    if OFF[line] in ("strategy", "across"):
        text = text.replace(SEEDS, "seeds: 3")
    if OFF[line] == "tune":
        text = text.replace("data: digits", "data: {name: digits, validation: 0.15}")
    names = {"name": "my-study", "across": "space/train_images-300"}
    assert space.load(text, "space.yaml").name == names.get(OFF[line], "space")


@pytest.mark.parametrize(
    "allowed",
    [
        *words_of(Design, "name"),
        *words_of(Strategy, "name"),
        *words_of(Scheduler, "name"),
        *words_of(Recipe, "optimizer"),
        *words_of(Recipe, "schedule"),
        *words_of(Recipe, "precision"),
        *RECIPES,
        *SETS,
        *(
            "top1",
            "top5",
            "loss",
            "params",
            "flops",
            "flops_paper",
            "activations",
            "elementwise",
            "iso-params",
            "iso-flops",
        ),
    ],
)
def test_the_comments_name_every_allowed_word(allowed: str) -> None:
    assert re.search(rf"(?<![\w-]){re.escape(allowed)}(?![\w-])", TEXT)


def test_the_comments_name_no_factor_and_no_diagnostic_that_is_not_there() -> None:
    outside = {
        "data.image_size",
        "data.train_images",
        *(f"recipe.{name}" for name in get_type_hints(Recipe)),
    }
    named = set(re.findall(r"(?<![\w.])(?:[a-z_]+)\.[a-z_]+\b(?!\w*[.(])", TEXT))
    named -= {"baseline.flops", "space.yaml", "space.schema", "schema.json"}
    assert named
    assert named <= {*factors.parameters(), *outside}
    for name in parse(
        next(line for line, key in OFF.items() if key == "diagnostics"), "line"
    ).values["diagnostics"]:
        assert diagnostics.find(name)


@pytest.mark.proof
def test_one_epoch_is_enough_for_a_smoke_test(options: Options) -> None:
    text = re.sub(
        r"^recipe: .*$",
        "recipe: {epochs: 1}",
        TEXT.replace(SEEDS, "seeds: 1"),
        flags=re.MULTILINE,
    )
    assert (
        pipeline.run(space.load(text, "space.yaml"), "space.yaml", options).trained == 4
    )


def test_nothing_is_overwritten(say: Say) -> None:
    Path("space.yaml").write_text("mine")
    message = (
        "error: space.yaml already exists and was not changed; choose another name,"
        " such as: ablate init space-2\n"
    )
    assert say("init") == (2, "", message)
    assert say("init", "space") == (2, "", message)
    assert Path("space.yaml").read_text() == "mine"
    Path("search.yaml").symlink_to("nowhere.yaml")
    code, _, err = say("init", "--example", "search")
    assert code == 2
    assert err.endswith("such as: ablate init --example search search-2\n")
    assert not Path("nowhere.yaml").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("init", "a/b"), "there is no folder a; create it: mkdir -p a"),
        (("init", "--list", "x"), "--list takes no name and no --example"),
        (
            ("init", "--list", "--example", "search"),
            "--list takes no name and no --example",
        ),
        (
            ("init", "--example", "augvit/tabel3-small"),
            (
                "unknown example 'augvit/tabel3-small'; did you mean"
                " 'augvit/table3-small'?"
            ),
        ),
        (("init", "--example", "../pyproject"), "unknown example '../pyproject'"),
    ],
)
def test_wrong_requests(words: tuple[str, ...], message: str, say: Say) -> None:
    code, _, err = say(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_an_unknown_example_lists_all_with_their_questions(say: Say) -> None:
    _, _, err = say("init", "--example", "?")
    for name, file in examples().items():
        assert f"  {name}: {space.read(file).claim.question}\n" in err
    _, out, _ = say("init", "--list", "--format", "csv")
    assert [line.split(",")[0] for line in out.splitlines()[1:]] == list(examples())


@pytest.mark.parametrize("example", examples())
def test_an_example_is_copied_with_commands_that_fit(example: str, say: Say) -> None:
    assert say("init", "--example", example, "copy")[0] == 0
    text, original = (
        Path("copy.yaml").read_text(encoding="utf-8"),
        examples()[example].read_text(encoding="utf-8"),
    )
    assert parse(text, "copy.yaml").values == parse(original, "x").values
    assert re.match(r"# ablate (run|cost) copy\.yaml\s", text)
    assert "search_spaces" not in text
    studies = re.findall(r"ablate (?:table|plot|effects) (\S+)", text)
    assert set(studies) <= {"copy"}
    assert all(
        table in original for table in re.findall(r"ablate verify-costs (\S+)", text)
    )


def test_an_example_keeps_its_file_name(say: Say) -> None:
    assert say("init", "--example", "augvit/table3-small")[2].startswith(
        "wrote table3-small.yaml. Next: ablate plan"
    )
    assert space.read(Path("table3-small.yaml")).claim.published == "augvit/table3"
