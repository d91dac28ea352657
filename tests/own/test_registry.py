"""Parts of a user's file: what is found, what names them, and what changes a hash."""

from __future__ import annotations

import os
import py_compile
import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from ablate import data, factors, families
from ablate.errors import AblateError, UnknownName
from ablate.own import registry
from ablate.parts import trainer_named
from tests.conftest import Say

TRAINER = """
import ablate

@ablate.trainer(factors={"depth": [1, 2]}, metrics={"loss": "min"})
def train(trial):
    for epoch in trial.epochs():
        trial.report(loss=1.0 / epoch)
"""


def write(folder: Path, text: str, name: str = "own_parts.py") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def documented_factor() -> str:
    """The example factor exactly as docs/own.md prints it."""
    text = Path(__file__).parents[2].joinpath("docs/own.md").read_text()
    (code,) = re.findall(
        r"```python file=scale.py\n(\"\"\"A constant on.*?)```", text, re.DOTALL
    )
    return str(code)


def test_the_documented_factor_works_from_a_file(tmp_path: Path) -> None:
    registry.load_file(write(tmp_path, documented_factor()))
    assert factors.find("scale")[0].claim == "Smaller residuals train more stably."
    plain = families.resolve("test_vit", 16, 1, 10, {})
    scaled = families.resolve("test_vit", 16, 1, 10, {"scale": 0.5})
    assert plain.code == {}, "a model that the factor does not change keeps its hash"
    (name,) = scaled.code
    assert name == "factor scale"
    assert "scale" not in plain.canonical_json
    registry.clear()
    with pytest.raises(UnknownName, match="unknown factor 'scale'"):
        factors.find("scale")


def test_equal_content_is_equal_wherever_it_is(tmp_path: Path) -> None:
    one = registry.load_file(write(tmp_path / "one", TRAINER))
    registry.clear()
    other = registry.load_file(write(tmp_path / "two", TRAINER))
    assert one.hash == other.hash


def test_a_changed_file_is_loaded_again(tmp_path: Path) -> None:
    file = write(tmp_path, TRAINER)
    before = registry.load_file(file)
    assert registry.load_file(file) is before
    write(tmp_path, TRAINER.replace("[1, 2]", "[1, 2, 3]"))
    assert registry.load_file(file).hash != before.hash
    assert trainer_named("train").factors["depth"].accepts(3)


@pytest.mark.parametrize(
    "line",
    [
        "import helper",
        "from helper import VALUE",
        "import package.inner",
        "from package import inner",
        "from package.inner import VALUE",
        "def later():\n    import helper",
    ],
)
def test_what_a_file_imports_is_part_of_its_content(tmp_path: Path, line: str) -> None:
    write(tmp_path, "VALUE = 1\n", "helper.py")
    write(tmp_path, "", "package/__init__.py")
    inner = "from . import deeper\nVALUE = 1\n"
    write(tmp_path, inner, "package/inner.py")
    write(tmp_path, "VALUE = 1\n", "package/deeper.py")
    file = write(tmp_path, f"{TRAINER}\n{line}\n")
    before = registry.load_file(file).hash
    registry.clear()
    changed = "package/deeper.py" if "package" in line else "helper.py"
    write(tmp_path, "VALUE = 2\n", changed)
    assert registry.load_file(file).hash != before


def test_other_files_of_the_folder_do_not_count(tmp_path: Path) -> None:
    file = write(tmp_path, TRAINER)
    before = registry.load_file(file).hash
    registry.clear()
    write(tmp_path, "VALUE = 2\n", "elsewhere.py")
    assert registry.load_file(file).hash == before


def test_a_revision_takes_the_place_of_the_content(tmp_path: Path) -> None:
    text = TRAINER.replace(
        'metrics={"loss": "min"}', 'metrics={"loss": "min"}, revision=3'
    )
    file = write(tmp_path, text)
    registry.load_file(file)
    wanted = {"trainer train": "revision 3"}
    assert registry.identity("trainer", trainer_named("train")) == wanted
    write(tmp_path, f"{text}\n# A comment.\n")
    registry.load_file(file)
    assert registry.identity("trainer", trainer_named("train")) == wanted


def test_built_in_parts_count_from_revision_two_on() -> None:
    from dataclasses import replace

    factor = factors.catalogue()["shortcuts"]
    assert registry.identity("factor", factor) == {}
    assert registry.identity("factor", replace(factor, revision=1)) == {}
    second = replace(factor, revision=2)
    assert registry.identity("factor", second) == {"factor shortcuts": "revision 2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "declares no part"),
        ("x = 1 +\n", r"own_parts.py:1: SyntaxError"),
        ("x = 1\nraise ValueError('no')\n", r"own_parts.py:2: ValueError: no"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        (
            f"{TRAINER}\nother = ablate.command('true {{seed}}', metrics={{'a': 'max'}},"
            " name='train', revision=1)",
            "a trainer 'train' is declared by",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={'seconds': 'min'})\ndef f(t): ...",
            "the store has a column of this name",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={'a b': 'min'})\ndef f(t): ...",
            "letters, digits and _ only",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={})\ndef f(t): ...",
            "needs a metric",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={'a': 'up'})\ndef f(t): ...",
            "the direction is max or min, found 'up'",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={'a': 'max'}, factors={'recipe.lr':"
            " [1]})\ndef f(t): ...",
            "list it in recipe=",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={'a': 'max'}, factors={'d': 'abc'})\n"
            "def f(t): ...",
            "list its levels",
        ),
        (
            "import ablate\n@ablate.trainer(metrics={'a': 'max'}, recipe=['rate'])\n"
            "def f(t): ...",
            "unknown recipe field 'rate'",
        ),
        (
            "import ablate\nx = ablate.command('run {sede}', metrics={'a': 'max'})",
            "unknown placeholder 'sede'; did you mean 'seed'",
        ),
        (
            "import ablate\nx = ablate.command('run', metrics={'a': 'max'})",
            "without {seed} all seeds would train the same",
        ),
        (
            "import ablate\nx = ablate.command('run {seed}', metrics={'a': 'max'},"
            " factors={'d': [1, 2]})",
            "the command line does not contain the factor d",
        ),
    ],
)
def test_a_mistake_is_one_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AblateError, match=message):
        registry.load_file(write(tmp_path, text))
    assert not registry.sources()
    # The file can be corrected in the same process.
    registry.load_file(write(tmp_path, TRAINER))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("missing.py", "there is no file .*missing.py to load parts from"),
        ("space.yaml", "must end in .py"),
    ],
)
def test_a_file_that_cannot_be_loaded(tmp_path: Path, file: str, message: str) -> None:
    write(tmp_path, "a: 1\n", "space.yaml")
    with pytest.raises(AblateError, match=message):
        registry.load_file(tmp_path / file)


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    text = documented_factor().replace('name="scale"', 'name="shortcuts"')
    registry.load_file(write(tmp_path, text))
    with pytest.raises(AblateError, match="the factor 'shortcuts' is built in"):
        factors.catalogue()
    registry.clear()
    text = "import ablate\n@ablate.dataset()\ndef digits(): ..."
    registry.load_file(write(tmp_path, text))
    with pytest.raises(AblateError, match="the data set 'digits' is built in"):
        data.describe("digits")
    registry.clear()
    text = (
        "import ablate\n@ablate.backbone()\ndef resnet50(side, channels, classes): ..."
    )
    registry.load_file(write(tmp_path, text))
    with pytest.raises(AblateError, match="the backbone 'resnet50' is built in"):
        families.find("resnet50")


def test_a_module_name_that_is_taken(tmp_path: Path) -> None:
    with pytest.raises(AblateError, match="would both be the module 'json'"):
        registry.load_file(write(tmp_path, TRAINER, "json.py"))


def test_imported_parts_of_ablate_are_not_ones_own(tmp_path: Path) -> None:
    text = f"from ablate.factors.drop import FACTOR\n{TRAINER}"
    registry.load_file(write(tmp_path, text))
    assert registry.of_kind("factor") == {}


def test_a_worker_gets_the_content_of_the_driver(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 1\n", "beside.py")
    file = write(tmp_path, f"import beside\n{TRAINER}")
    source = registry.load_file(file)
    code = registry.identity("trainer", trainer_named("train"))
    registry.clear()
    # On another machine the file is missing, or another one.
    write(tmp_path, "VALUE = 2\n", "beside.py")
    registry.load_sources([source])
    assert sys.modules["beside"].VALUE == 1
    registry.verify(code)
    registry.clear()
    file.unlink()
    registry.load_sources([source])
    registry.verify(code)
    with pytest.raises(AblateError, match="the files of the trainer train changed"):
        registry.verify({"trainer train": "something else"})


def test_a_project_names_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, TRAINER)
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.ablate]\nwith = ["own_parts.py"]\n')
    registry.load_all([])
    assert trainer_named("train").name == "train"
    registry.clear()
    project.write_text('[tool.ablate]\nwith = "own_parts.py"\n')
    with pytest.raises(AblateError, match="must be a list of files"):
        registry.load_all([])
    project.write_text("[broken")
    registry.load_all([])


def test_an_installed_package_offers_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, TRAINER, "offered_parts/__init__.py")
    write(tmp_path, "VALUE = 1\n", "unrelated.py")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint(name="x", value="offered_parts", group="ablate")
    monkeypatch.setattr(registry, "_offered", lambda: [entry])
    registry.load_all([])
    (source,) = registry.sources()
    assert trainer_named("train").name == "train"
    assert list(source.files) == ["offered_parts/__init__.py"]
    registry.load_sources([source])
    monkeypatch.setattr(registry, "_offered", list)
    registry.clear()
    with pytest.raises(AblateError, match="differs from that of the driver"):
        registry.load_sources([source])


def test_each_verb_names_a_missing_file(say: Say) -> None:
    for verb in (["run", "tiny.yaml"], ["plan", "tiny.yaml"], ["factors"], ["schema"]):
        code, _, err = say(*verb, "--with", "missing.py")
        assert code == 2
        assert err == "error: there is no file missing.py to load parts from\n"


def test_the_schema_and_the_lists_show_ones_own_parts(say: Say, tmp_path: Path) -> None:
    write(tmp_path, documented_factor(), "mine.py")
    code, out, _ = say("factors", "scale", "--with", "mine.py")
    assert code == 0
    assert "factor on the FFN's output" in out
    assert '"scale"' in say("schema", "--with", "mine.py")[1]
    code, _, err = say("factors", "scale")
    assert code == 2
    assert "unknown factor 'scale'" in err


def test_two_helpers_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    """Python would give the second file the helper of the first one."""
    for number in (1, 2):
        write(tmp_path / f"m{number}", f"VALUE = {number}\n", "helper.py")
        text = TRAINER.replace("def train(", f"def train{number}(")
        text = f"from helper import VALUE\n{text}"
        write(tmp_path / f"m{number}", text, f"mine{number}.py")
    registry.load_file(tmp_path / "m1" / "mine1.py")
    with pytest.raises(AblateError, match=r"would both be the module 'helper'"):
        registry.load_file(tmp_path / "m2" / "mine2.py")
    assert trainer_named("train1")


def test_two_files_share_a_helper(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 1\n", "helper.py")
    for number in (1, 2):
        text = TRAINER.replace("def train(", f"def train{number}(")
        write(tmp_path, f"from helper import VALUE\n{text}", f"mine{number}.py")
        registry.load_file(tmp_path / f"mine{number}.py")
    assert trainer_named("train1").name != trainer_named("train2").name


def test_compiled_files_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their time stamps may say that they are new although they are old."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    helper = write(tmp_path, "VALUE = 5\n", "helper.py")
    file = write(tmp_path, f"import helper\n{TRAINER}")
    py_compile.compile(str(helper))
    py_compile.compile(str(file))
    stamp = helper.stat().st_mtime
    helper.write_text("VALUE = 7\n")
    os.utime(helper, (stamp, stamp))
    registry.load_file(file)
    assert sys.modules["helper"].VALUE == 7


def test_a_byte_order_mark_hides_no_import(tmp_path: Path) -> None:
    write(tmp_path, "VALUE = 1\n", "helper.py")
    file = tmp_path / "own_parts.py"
    file.write_bytes(b"\xef\xbb\xbf" + f"import helper\n{TRAINER}".encode())
    assert set(registry.load_file(file).files) == {"helper.py", "own_parts.py"}


def test_the_package_beside_a_file_is_not_the_users(tmp_path: Path) -> None:
    write(tmp_path, "", "ablate/__init__.py")
    source = registry.load_file(write(tmp_path, TRAINER))
    assert list(source.files) == ["own_parts.py"]
    registry.clear()
    assert "ablate" in sys.modules
    assert str(tmp_path) not in sys.path


def test_a_factor_must_not_have_the_name_of_a_metric(tmp_path: Path) -> None:
    text = (
        "import ablate\n@ablate.trainer(metrics={'a': 'max'}, factors={'a': [1, 2]})\n"
        "def f(t): ..."
    )
    with pytest.raises(AblateError, match="is the name of a metric"):
        registry.load_file(write(tmp_path, text))


def test_prints_of_a_file_are_no_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.load_file(write(tmp_path, f"print('hello')\n{TRAINER}"))
    assert capsys.readouterr() == ("", "hello\n")


def test_the_name_of_the_file_does_not_count(tmp_path: Path) -> None:
    one = registry.load_file(write(tmp_path, TRAINER, "one_name.py"))
    registry.clear()
    other = registry.load_file(write(tmp_path, TRAINER, "other_name.py"))
    assert one.hash == other.hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metrics=['a']", "'a' has no direction; write"),
        ("metrics={'a': 'max'}, recipe='lr'", "recipe= is a list of fields"),
        ("metrics={'a': 'max'}, recipe=['hidden']", "a number of your own is a factor"),
    ],
)
def test_a_wrong_argument_says_what_to_write(
    tmp_path: Path, text: str, message: str
) -> None:
    file = write(tmp_path, f"import ablate\n@ablate.trainer({text})\ndef f(t): ...")
    with pytest.raises(AblateError, match=message):
        registry.load_file(file)


def test_an_unknown_factor_may_be_one_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as error:
        factors.find("zzzzzz")
    assert str(error.value).endswith("; a factor of your own needs its file: with FILE")
    # A word that is nearly known is a slip, and with files the user knows of them.
    with pytest.raises(UnknownName) as error:
        factors.find("shortcuts.coutn")
    assert str(error.value).endswith("did you mean 'shortcuts.count'?")
    registry.load_file(write(tmp_path, documented_factor()))
    with pytest.raises(UnknownName) as error:
        factors.find("zzzzzz")
    assert "needs its file" not in str(error.value)
