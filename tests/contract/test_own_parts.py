"""`ablate check` passes sound parts, and names what is wrong with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ablate.contracts import checks
from ablate.own import registry
from tests.conftest import Say
from tests.own.test_parts import PARTS
from tests.own.test_trainer import PARTS as TRAINER


def failures(folder: Path, text: str) -> Iterator[tuple[str, str]]:
    """What fails in a file: each check and why, as soon as it has run."""
    file = folder / "checked_parts.py"
    file.write_text(text)
    registry.clear()
    registry.load_file(file)
    # Those of factors, which build many networks, come last.
    for part, check in sorted(checks(), key=lambda one: one[0].startswith("factor")):
        outcome = check.outcome()
        if outcome.result == "BROKEN":
            yield f"{part} {check.what}", outcome.why


def broken(folder: Path, text: str) -> dict[str, str]:
    """What fails in a file, by check."""
    return dict(failures(folder, text))


@pytest.mark.proof
def test_sound_parts_pass(tmp_path: Path) -> None:
    assert broken(tmp_path, PARTS) == {}
    assert broken(tmp_path, TRAINER) == {}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('claim="Smaller residuals train more stably."', 'claim="x"', "full stop"),
        ('values["scale"] == 1.0,', 'values["scale"] > 1,', "neutral is false at the"),
        ("self.factor * self.inner(x)", "self.inner(x)", "gives the same output"),
        ("self.factor * self.inner(x)", "x.detach() * 2", "gets no gradient"),
        (
            "self.factor * self.inner(x)",
            "self.factor * torch.fft.fft(self.inner(x)).real",
            "no rule says how much",
        ),
        ("(0.5, 2.0)", "(0.5, -2.0)", "the typical level -2.0 is not allowed"),
        (
            "return nn.Sequential(nn.Flatten()",
            "torch.seed()\n    return nn.Sequential(nn.Flatten()",
            "differs between two networks of one seed",
        ),
        ("default_rng(0)", "default_rng()", "two calls return other images or labels"),
        (
            "labels[200:]\n\n\n@ablate.back",
            "labels[200:] * 0\n\n\n@ablate.back",
            "lack",
        ),
        ("multi_margin_loss(logits", "multi_margin_loss(-logits", "for right and"),
        ("multi_margin_loss(logits, targets)", "relu(logits)", "returns a tensor of"),
        ("multi_margin_loss(logits", "multi_margin_loss(logits.detach()", "grad"),
        ('direction="max", title', 'direction="min", title', "for right and"),
        ("return 100 * min(", "return 1 / 0 * min(", "ZeroDivisionError"),
        ('about="mean norm of the tokens"', 'about=""', "about is empty"),
    ],
)
def test_a_broken_part_is_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in PARTS
    found = failures(tmp_path, PARTS.replace(old, new))
    assert any(message in why for _, why in found)


@pytest.mark.parametrize(
    ("old", "new", "check", "message"),
    [
        ("torch.load(path)", "[]", "resumes", "a resumed trial gives another result"),
        (", save=save", "", "resumes", "nothing is saved, so an interrupted trial"),
        ("torch.randn(16, 4)", "torch.ones(16, 4)", "", ""),
        ("drawn=drawn", "drawn=__import__('os').urandom(1)[0]", "same seed", "another"),
        ('nn.Linear(levels["width"], 1)', "nn.Linear(7, 1)", "counted", "cannot be"),
        ("trial.report(", "dict(", "reports 2 epochs", "returned after 0"),
    ],
)
def test_a_broken_trainer_is_named(
    tmp_path: Path, old: str, new: str, check: str, message: str
) -> None:
    assert old in TRAINER
    found = failures(tmp_path, TRAINER.replace(old, new))
    if not check:
        assert not list(found), "other random numbers make up for it"
        return
    assert any(check in name and message in why for name, why in found)


def test_the_verb_reads_like_a_test_report(say: Say, tmp_path: Path) -> None:
    (tmp_path / "sound.py").write_text(TRAINER)
    code, out, _ = say("check", "sound.py")
    assert code == 0
    assert "resumes after its first epoch with the same result" in out
    assert "6 checks, all ok." in out
    (tmp_path / "bad.py").write_text(TRAINER.replace("torch.load(path)", "[]"))
    code, out, _ = say("check", "bad.py", "--format", "json")
    assert code == 1
    assert '"ok": false' in out
    code, _, err = say("check", "missing.py")
    assert (code, err) == (2, "error: there is no file missing.py to load parts from\n")


SHARED = """
from torch import nn

from ablate import Factor, OneOf, Parameter
from ablate.errors import Infeasible
from ablate.factors.factor import Edits

VALUES = {}


class Residual(nn.Module):
    def __init__(self, layer, depth):
        super().__init__()
        self.layer, self.depth = layer, depth

    def forward(self, source, v):
        if self.layer == 0:
            VALUES[self.depth] = v
        return v + 0.6 * (VALUES[self.depth] - v)


def edit(values, site):
    on = values["mine"]
    if site.heads % MULTIPLE:
        raise Infeasible(f"mine = {on} needs a multiple of MULTIPLE heads")
    return Edits(value=Residual(site.layer, site.depth))


FACTOR = Factor(
    name="mine",
    source="mine",
    claim="Values of the first block help.",
    neutral=lambda values: values["mine"] is False,
    edit_attention=edit,
    parameters=(Parameter("mine", OneOf((False, True)), False, "x", (True,)),),
)
"""


@pytest.mark.proof
def test_state_that_networks_share_is_found(tmp_path: Path) -> None:
    problems = broken(tmp_path, SHARED.replace("MULTIPLE", "2"))
    assert list(problems) == ["factor mine mine = True: two networks share nothing"]


@pytest.mark.proof
def test_a_refusal_is_no_broken_rule(tmp_path: Path, say: Say) -> None:
    (tmp_path / "sevens.py").write_text(SHARED.replace("MULTIPLE", "7"))
    code, out, _ = say("check", "sevens.py")
    assert code == 0
    assert "refused: the part does not fit the small networks of the check" in out
    assert "needs a multiple of 7 heads" in out
