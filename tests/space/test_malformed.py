"""Malformed YAML: each gives one clear error with file and line, exit code 2, and no
traceback.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate import space
from ablate.cli import main
from ablate.errors import AblateError, SpaceError
from tests.attack import cases_data, cases_documents, cases_keys, cases_levels
from tests.attack.case import SPACE
from tests.attack.cases_documents import GOOD, added, changed

# name: (document, line of the mistake, what the message says)
MALFORMED: dict[str, tuple[str, int, str]] = {
    "empty": ("", 1, "the document is empty"),
    "only a comment": ("# nothing\n", 1, "the document is empty"),
    "a list": ("- question: q\n", 1, "a space is a mapping"),
    "a word": ("hello\n", 1, "a space is a mapping"),
    "unclosed bracket": (changed("[0, 1]", "[0, 1"), 4, "not valid YAML"),
    "bad indent": (changed("  layout:", "   layout:"), 5, "not valid YAML"),
    "tab": (changed("  layout:", "\tlayout:"), 5, "not valid YAML"),
    "unclosed quote": (changed("Does it help?", '"Does it help?'), 1, "not valid YAML"),
    "control character": (changed("help", "he\x07lp"), 1, "not valid YAML"),
    "two documents": (GOOD + "---\n" + GOOD, 9, "not valid YAML"),
    "unknown alias": (changed("seeds: 2", "seeds: *two"), 6, "not valid YAML"),
    "python object": (
        changed("seeds: 2", "seeds: !!python/object/apply:os.system ['true']"),
        6,
        "the tag",
    ),
    "custom tag": (
        changed("digits", "!mine digits"),
        7,
        "the tag !mine is not allowed",
    ),
    "binary tag": (changed("digits", "!!binary aGk="), 7, "is not allowed"),
    "key twice": (added("seeds: 3"), 9, "the key 'seeds' is a duplicate"),
    "factor twice": (
        changed("  layout:", "  shortcuts.count: [0, 2]\n  layout:"),
        5,
        "the key 'shortcuts.count' is a duplicate",
    ),
    "key is a number": (added("5: x"), 9, "a key must be text"),
    "key is a list": (added("[a, b]: x"), 9, "a key must be text"),
    "endless alias": (
        "question: &a [*a]\n",
        1,
        "nested deeper than 30 levels, or refers to itself",
    ),
    "alias bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{n}: &{n} [*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p},*{p}]\n"
            for p, n in zip("abcdef", "bcdefg", strict=True)
        ),
        1,
        "the document is too large",
    ),
    "backbone twice": (
        changed("factors:", "factors:\n  backbone: [pvt_small, lvt_r1]"),
        2,
        "name the backbone in one place",
    ),
    "unknown backbone among factors": (
        changed(
            "backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads:"
            " 2}\nfactors:",
            "factors:\n  backbone: [pvt_small, pvt_smal]",
        ),
        3,
        "did you mean 'pvt_small'",
    ),
    "family without a declared form": (
        changed("family: vit", "family: swin"),
        2,
        "unknown family 'swin'",
    ),
    "image side that is none": (
        changed("factors:", "factors:\n  data.image_size: [8, big]"),
        4,
        "'big' is not a level",
    ),
    "fixed data": (added("fixed: {data.image_size: 8}"), 9, "belongs under `data`"),
    "rows without the design": (
        added("rows: [{}]"),
        9,
        "rows is read by design rows, not by grid",
    ),
    "primary of an unknown factor": (
        added("primary: [shortcuts.cout]"),
        9,
        "did you mean 'shortcuts.count'",
    ),
    "primary at an unlisted level": (
        added("primary:\n  - {shortcuts.count: 3}"),
        10,
        "3 is not among the levels",
    ),
    "primary row and factor": (
        added("primary: [1, layout]"),
        9,
        "primary names rows or factors, not both",
    ),
    "primary row 0": (added("primary: [{}]"), 9, "primary: {} is row 0"),
    "primary twice": (added("primary: [1, 1]"), 9, "comparison 2 is a duplicate"),
    "primary of a wrong type": (added("primary: [1.5]"), 9, "must be a valid integer"),
    "primary row below 1": (added("primary: [0]"), 9, "greater than or equal to 1"),
    "primary controls without controls": (
        added("primary: [controls]"),
        9,
        "add `control: iso-flops`",
    ),
    "primary of a search": (
        added("strategy: {name: random, cells: 2}\nprimary: [1]"),
        10,
        "a search chooses its rows",
    ),
    "design rows without rows": (added("design: rows"), 9, "design rows needs cells"),
    "row of an unknown factor": (
        added("design: rows\nrows:\n  - {}\n  - {shortcuts.cout: 1}"),
        12,
        "did you mean 'shortcuts.count'",
    ),
    "row at an unlisted level": (
        added("design: rows\nrows:\n  - {}\n  - {shortcuts.count: 3}"),
        12,
        "3 is not among the levels",
    ),
    "level of no row": (
        added("design: rows\nrows:\n  - {}\n  - {shortcuts.count: 1}"),
        5,
        "no row is at the level 'parallel'",
    ),
    "image side twice": (
        changed("data: digits", "data: {name: digits, image_size: 8}").replace(
            "factors:", "factors:\n  data.image_size: [8, 16]"
        ),
        8,
        "data.image_size varies under factors",
    ),
    "path of what is embedded": (
        changed("data: digits", "data: {name: digits, path: x}"),
        7,
        "leave path out",
    ),
    "diagnostic twice": (
        added("diagnostics: [diversity, diversity]"),
        9,
        "diversity is a duplicate",
    ),
    "row twice": (
        added("design: rows\nrows:\n  - {}\n  - {}"),
        12,
        "row 1 is a duplicate",
    ),
    "rows and a baseline": (
        added("design: rows\nrows:\n  - {}\nbaseline: {layout: parallel}"),
        12,
        "leave `baseline` out",
    ),
    "unknown published table": (
        added("published: augvit/tabel3"),
        9,
        "did you mean 'augvit/table3'",
    ),
    "pretrained file that is not there": (
        added("pretrained: nowhere.pth"),
        9,
        "no file nowhere.pth",
    ),
    "unknown diagnostic": (
        added("diagnostics: [token_cosin]"),
        9,
        "did you mean 'token_cosine'",
    ),
    "unknown diagnostic in full": (
        added("diagnostics:\n  names: [x]"),
        10,
        "unknown diagnostic 'x'",
    ),
    "no diagnostic images": (
        added("diagnostics: {images: 0}"),
        9,
        "must be greater than or equal to 1",
    ),
    "deep": (
        "question: " + "[" * 200 + "]" * 200 + "\n",
        1,
        "nested deeper than 30 levels",
    ),
    "unknown key": (added("sedes: 3"), 9, "unknown key 'sedes'; did you mean 'seeds'?"),
    "another tool's key": (
        added("learning_rate: 3"),
        9,
        "unknown key 'learning_rate'; known: question,",
    ),
    "another tool's section": (
        added("dataset: digits"),
        9,
        "unknown key 'dataset'; did you mean 'data'?",
    ),
    "key of another form of seeds": (
        changed("seeds: 2", "seeds: {until_decided: 9, adaptive: 5}"),
        6,
        "unknown key 'adaptive'; known: until_decided, start, step, baseline, vary",
    ),
    "far from any key": (added("zzz: 3"), 9, "unknown key 'zzz'; known: question,"),
    "no question": (
        changed("question: Does it help?\n", ""),
        1,
        "missing key 'question'",
    ),
    "no backbone": (
        changed(
            "backbone: {family: vit, patch_size: 4, width: 16, depth: 1, heads: 2}\n",
            "",
        ),
        1,
        "name the backbone in one place",
    ),
    "empty question": (changed("Does it help?", '""'), 1, "question:"),
    "question is a number": (
        changed("Does it help?", "3"),
        1,
        "question: must be a valid string, found 3",
    ),
    "no factors": (
        changed("  shortcuts.count: [0, 1]\n  layout: [serial, parallel]\n", "  {}\n"),
        3,
        "factors is empty",
    ),
    "unknown factor": (
        changed("shortcuts.count", "shortcut.count"),
        4,
        "unknown factor 'shortcut.count'; did you mean 'shortcuts.count'?",
    ),
    "field of the recipe": (
        changed("shortcuts.count: [0, 1]", "lr: [1e-3, 2e-3]"),
        4,
        "unknown factor 'lr'; did you mean 'recipe.lr'?",
    ),
    "level not allowed": (
        changed("parallel", "paralel"),
        5,
        "layout: 'paralel' is not a level; allowed: serial, parallel; did you mean",
    ),
    "level of another type": (
        changed("[0, 1]", '[0, "1"]'),
        4,
        "shortcuts.count: '1' is not a level; allowed: whole numbers from 0 to 64",
    ),
    "truth for a number": (
        changed("[0, 1]", "[0, true]"),
        4,
        "shortcuts.count: True is not a level",
    ),
    "level out of range": (
        changed("layout: [serial, parallel]", "drop.path: [0, 1.0]"),
        5,
        "numbers from 0 to below 1",
    ),
    "negative count": (changed("[0, 1]", "[0, -1]"), 4, "-1 is not a level"),
    "level twice": (changed("[0, 1]", "[0, 1, 1]"), 4, "the level 1 is a duplicate"),
    "level twice in two types": (
        changed("layout: [serial, parallel]", "drop.path: [0, 0.0]"),
        5,
        "the level 0.0 is a duplicate",
    ),
    "baseline of another type": (
        added("baseline: {shortcuts.count: true}"),
        9,
        "baseline: True is not among the levels",
    ),
    "recipe not read": (
        changed("epochs: 2,", "momentum: 0.5, epochs: 2,"),
        8,
        "recipe.momentum is not read unless optimizer is sgd",
    ),
    "one level": (changed("[0, 1]", "[1]"), 4, "needs two levels or more, has 1"),
    "levels not a list": (
        changed("[0, 1]", "1"),
        4,
        "factors.shortcuts.count: must be a list of levels, the baseline first, found 1;"
        " write `shortcuts.count: [..., 1]`",
    ),
    "level is null": (changed("[0, 1]", "[0, null]"), 4, "found None"),
    "number too large": (changed("[0, 1]", "[0, 1e999]"), 4, "is not a finite number"),
    "not a number": (changed("[0, 1]", "[0, .nan]"), 4, "is not a finite number"),
    "fixed and varied": (
        added("fixed: {layout: parallel}"),
        9,
        "layout is under factors and under fixed",
    ),
    "fixed unknown": (
        added("fixed:\n  shortcuts.bb: 2"),
        10,
        "unknown factor 'shortcuts.bb'; did you mean 'shortcuts.b'?",
    ),
    "fixed recipe": (added("fixed: {recipe.lr: 0.1}"), 9, "belongs under `recipe`"),
    "baseline not listed": (
        added("baseline: {shortcuts.count: 5}"),
        9,
        "baseline: 5 is not among the levels of shortcuts.count: 0, 1",
    ),
    "baseline unknown": (
        added("baseline: {layuot: serial}"),
        9,
        "unknown factor 'layuot'; did you mean 'layout'?",
    ),
    "full in a grid": (
        added("full: {shortcuts.count: 1}"),
        9,
        (
            "full is read by the designs leave-one-out, add-one-in, fractional and"
            " plackett-burman, not by grid"
        ),
    ),
    "unknown design": (
        added("design: gird"),
        9,
        "unknown design 'gird'; did you mean 'grid'?",
    ),
    "random without a number": (
        added("design: random"),
        9,
        "design random needs a number of cells",
    ),
    "cells in a grid": (
        added("design: {name: grid, cells: 4}"),
        9,
        "cells is read by design random, not by grid",
    ),
    "unknown family": (
        changed("family: vit", "family: vti"),
        2,
        "unknown family 'vti'; did you mean 'vit'?",
    ),
    "size said twice": (
        changed("layout: [serial, parallel]", "size.width: [16, 32]"),
        5,
        "size.width varies, but backbone says width too",
    ),
    "unknown size": (
        changed("heads", "haeds"),
        2,
        "unknown key 'haeds'; did you mean 'heads'?",
    ),
    "zero width": (changed("width: 16", "width: 0"), 2, "greater than or equal to 1"),
    "seeds a word": (
        changed("seeds: 2", "seeds: two"),
        6,
        "seeds: must be a valid integer, found 'two'",
    ),
    "no seeds": (changed("seeds: 2", "seeds: 0"), 6, "greater than or equal to 1"),
    "seed twice": (changed("seeds: 2", "seeds: [1, 1]"), 6, "seeds: 1 is a duplicate"),
    "negative seed": (
        changed("seeds: 2", "seeds: [-1]"),
        6,
        "greater than or equal to 0",
    ),
    "unknown data": (
        changed("digits", "digit"),
        7,
        "unknown data set 'digit'; did you mean 'digits'?",
    ),
    "no such npz": (changed("digits", "missing.npz"), 7, "no file missing.npz"),
    "npz without a path": (changed("digits", "npz"), 7, "npz needs a path"),
    "unknown recipe": (
        changed("{epochs: 2, warmup_epochs: 0}", "samll"),
        8,
        "unknown recipe 'samll'; did you mean 'small'?",
    ),
    "unknown recipe key": (
        changed("warmup_epochs", "warmup"),
        8,
        "unknown key 'warmup'",
    ),
    "fractional epochs": (
        changed("epochs: 2,", "epochs: 2.5,"),
        8,
        "recipe.epochs: must be a valid integer, found 2.5",
    ),
    "warm-up eats all": (
        changed("warmup_epochs: 0", "warmup_epochs: 2"),
        8,
        "2 warm-up epochs leave nothing of 2 epochs",
    ),
    "unknown optimiser": (
        changed("epochs: 2,", "optimizer: adem,"),
        8,
        "recipe.optimizer: unknown optimizer 'adem'; did you mean",
    ),
    "recipe level": (
        changed("layout: [serial, parallel]", "recipe.lr: [0.1, -0.1]"),
        5,
        "recipe.lr: should be greater than 0, found -0.1",
    ),
    "recipe factor": (
        changed("layout: [serial, parallel]", "recipe.lrr: [0.1, 0.2]"),
        5,
        "unknown factor 'recipe.lrr'; did you mean 'recipe.lr'?",
    ),
    "unknown metric": (added("metric: {top2: max}"), 9, "top2"),
    "two metrics": (
        added("metric: {top1: max, loss: min}"),
        9,
        "a design has one metric; several belong to a search",
    ),
    "direction": (
        added("metric: {top1: up}"),
        9,
        "'up' is not allowed; allowed: max, min",
    ),
    "limit without a bound": (
        added("limits: {flops: small}"),
        9,
        "limits.flops: 'small' is not a bound; write one like",
    ),
    "limit that would run code": (
        added("limits: {flops: \"<= __import__('os')\"}"),
        9,
        "is not a bound",
    ),
    "limit on an unknown cost": (
        added('limits: {flop: "<= 1"}'),
        9,
        "'flop' is not allowed; allowed: params, flops",
    ),
    "unknown resource": (
        added("resources: {cpu: 1}"),
        9,
        "unknown key 'cpu'; did you mean 'cpus'?",
    ),
    "no cpu": (added("resources: {cpus: 0}"), 9, "greater than 0"),
    "one and a half gpus": (
        added("resources: {gpus: 1.5}"),
        9,
        "above 1 it must be a whole number",
    ),
    "unknown scheduler": (added("scheduler: hyper"), 9, "unknown scheduler 'hyper'"),
    "reduction in fifo": (
        added("scheduler: {name: fifo, reduction: 3}"),
        9,
        "reduction is not read by scheduler fifo",
    ),
    "samples in asha": (
        added("scheduler: {name: asha, samples: 3}"),
        9,
        "samples is not read by scheduler asha",
    ),
    "strategy without a number of cells": (
        added("strategy: tpe"),
        9,
        "needs a number of cells: strategy: {name: tpe, cells: 40}",
    ),
    "unknown strategy": (
        added("strategy: {name: tpee, cells: 3}"),
        9,
        "'tpee' is not allowed",
    ),
    "unknown short strategy": (
        added("strategy: bruteforce"),
        9,
        "did you mean 'brute-force'",
    ),
    "strategy and design": (
        added("strategy: brute-force\ndesign: grid"),
        9,
        "two ways to choose cells",
    ),
    "cmaes on words": (
        added("strategy: {name: cmaes, cells: 5}"),
        9,
        "cmaes needs levels that are numbers, layout has others",
    ),
    "adaptive seeds in a design": (
        changed("seeds: 2", "seeds: {adaptive: 3}"),
        6,
        "adaptive seeds belong to a search",
    ),
    "costs as the only goal": (
        added("strategy: brute-force\nmetric: {flops: min}"),
        10,
        "the first metric must be one of top1, top5",
    ),
    "two metrics of training": (
        added("strategy: brute-force\nmetric: {loss: min, top5: max}"),
        10,
        "metric: top5 is a second metric of training beside loss",
    ),
    "goals and a scheduler": (
        added(
            "strategy: brute-force\nscheduler: asha\nmetric: {top1: max, flops: min}"
        ),
        11,
        "a scheduler that stops trials compares one metric",
    ),
    "limit that is a call": (
        added('limits: ["flops() <= 3"]'),
        9,
        "'flops() <= 3' is not a bound on costs, or on factors",
    ),
    "limit on nothing known": (
        added('limits: ["flop <= 3"]'),
        9,
        "is not a bound on costs",
    ),
    "limit on the baseline alone": (
        added('limits: ["baseline.flops <= 3"]'),
        9,
        "is not a bound on costs",
    ),
    "name with spaces": (added("name: my study"), 9, "name:"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_mistake_is_reported_with_its_line(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document, line, message = MALFORMED[name]
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(document)
    monkeypatch.setattr(sys, "argv", ["ablate", "plan", "space.yaml"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    assert f"space.yaml:{line}: " in err, err
    assert message in err
    assert err.count("\n") == 1, f"one mistake, one line: {err}"
    assert not Path("runs").exists(), "a mistake leaves nothing behind"


def test_the_good_document_is_good() -> None:
    from ablate import space

    assert space.load(GOOD, "good.yaml").seeds.numbers == (0, 1)


def test_no_other_table_has_the_same_documents() -> None:
    documents = {document for document, _, _ in MALFORMED.values()}
    assert len(documents) == len(MALFORMED) >= 100
    again = [
        case.name
        for module in (cases_documents, cases_keys, cases_levels, cases_data)
        for case in module.CASES
        if case.files.get(SPACE) in documents
    ]
    assert again == []


def test_all_mistakes_are_reported_at_once_in_order(tmp_path: Path) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(
        changed("[0, 1]", "[0, -1]")
        .replace("parallel]", "paralel]")
        .replace("digits", "digit")
    )
    done = subprocess.run(
        [sys.executable, "-m", "ablate", "run", str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert [line.partition("space.yaml:")[2].partition(":")[0] for line in lines] == [
        "4",
        "5",
        "7",
    ]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"question: \xe4\n", None])
def test_files_that_are_no_text(
    content: bytes | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "space.yaml"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["ablate", "cost", str(file)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "cannot be read" in capsys.readouterr().err


def messages_of(text: str) -> list[str]:
    try:
        space.load(text, "s.yaml")
    except SpaceError as error:
        return [str(problem) for problem in error.problems]
    except AblateError as error:
        return [str(error)]
    return []


SUGGESTION = re.compile(r"'?([\w./-]+)'?[^';]*; did you mean '([^']+)'\?")


@pytest.mark.proof
def test_whatever_a_message_suggests_is_accepted() -> None:
    followed = 0
    for text, _, _ in MALFORMED.values():
        for message in messages_of(text):
            meant = SUGGESTION.search(message)
            if meant is None or text.count(meant[1]) != 1:
                continue
            followed += 1
            better = text.replace(meant[1], meant[2])
            assert message not in messages_of(better), message
            assert not [
                other
                for other in messages_of(better)
                if "unknown" in other and meant[2] in other
            ], message
    assert followed >= 5


# How timm's train.py calls what a recipe has.
TIMM = {
    "aa": "rand_augment",
    "opt": "optimizer",
    "sched": "schedule",
    "reprob": "random_erasing",
    "remode": "random_erasing",
    "smoothing": "label_smoothing",
    "opt-eps": "eps",
    "opt_betas": "beta1",
    "clip-grad": "clip_grad",
    "warmup-epochs": "warmup_epochs",
    "mixup-off-epoch": "mixup_off_epoch",
    "train-interpolation": "interpolation",
    "hflip": "flip",
    "ratio": "crop_ratio",
    "scale": "crop_scale",
    "aug-repeats": "repeats",
    "model-ema": "ema",
    "lr-cycle-mul": "schedule_options",
    "decay-rate": "schedule_options",
    "batch-size": "batch_size",
    "weight-decay": "weight_decay",
    "min-lr": "min_lr",
    "layer-decay": "layer_decay",
    "color-jitter": "color_jitter",
    "bce-loss": "loss",
    "bce-target-thresh": "loss_threshold",
    "grad-accum-steps": "accumulate",
    "grad-checkpointing": "checkpointing",
}


@pytest.mark.parametrize("name", TIMM)
def test_the_names_of_timm_lead_to_ours(name: str, tiny: str) -> None:
    text = tiny.replace("recipe: {", f"recipe: {{{name}: 1, ")
    with pytest.raises(SpaceError, match=f"did you mean '{TIMM[name]}'"):
        space.load(text, "tiny.yaml")
