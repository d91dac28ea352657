"""The lines in examples/projects turn projects with these interfaces into studies.

The projects themselves are not here: small stand-ins have the same modules, options,
output and files.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from ablate import pipeline, space
from ablate.execution import make
from ablate.own import registry
from ablate.pipeline import Options
from ablate.results.study import Study
from tests.own.test_command import errors
from tests.own.test_trainer import stopping_after

PROJECTS = Path(__file__).parents[2] / "examples" / "projects"

RESNET = """
from torch import nn


class BasicBlock(nn.Module):
    expansion = 1


class ResNet(nn.Module):
    def __init__(self, block, num_blocks, num_classes=10):
        super().__init__()
        assert issubclass(block, nn.Module) and len(num_blocks) == 4
        self.conv1 = nn.Conv2d(3, 4, 3, stride=4, bias=False)
        self.linear = nn.Linear(256, num_classes)

    def forward(self, x):
        return self.linear(self.conv1(x).relu().flatten(1))
"""
PREACT = RESNET.replace("BasicBlock", "PreActBlock").replace("ResNet", "PreActResNet")
CONVNEXT = """
import torch
from torch import nn


class ConvNeXt(nn.Module):
    def __init__(self, in_chans=3, num_classes=1000, depths=[3, 3, 9, 3],
                 dims=[96, 192, 384, 768], drop_path_rate=0.0,
                 layer_scale_init_value=1e-6, head_init_scale=1.0):
        super().__init__()
        self.stem = nn.Conv2d(in_chans, dims[0], 4, stride=4)
        self.gamma = (
            nn.Parameter(torch.full((dims[0],), layer_scale_init_value))
            if layer_scale_init_value > 0 else None
        )
        self.head = nn.Linear(dims[0], num_classes)

    def forward(self, x):
        x = self.stem(x)
        if self.gamma is not None:
            x = x + self.gamma[:, None, None] * x
        return self.head(x.mean((2, 3)))
"""
# As nanoGPT's train.py: options through a configurator, a checkpoint, its own seed.
NANOGPT = """
import os, sys
from ast import literal_eval
import torch

settings = dict(out_dir="out", eval_interval=2000, eval_iters=200, init_from="scratch",
    always_save_checkpoint=True, device="cuda", compile=True, dropout=0.0, bias=False,
    n_layer=12, n_head=12, n_embd=768, block_size=1024, batch_size=12, max_iters=600000)
for arg in sys.argv[1:]:
    if "=" not in arg:
        assert os.path.isfile(arg)
        continue
    key, val = arg.removeprefix("--").split("=")
    try:
        attempt = literal_eval(val)
    except (SyntaxError, ValueError):
        attempt = val
    assert type(attempt) == type(settings[key]), (key, val)
    settings[key] = attempt
torch.manual_seed(1337)
os.makedirs(settings["out_dir"], exist_ok=True)
file = os.path.join(settings["out_dir"], "ckpt.pt")
iter_num = torch.load(file)["iter_num"] if settings["init_from"] == "resume" else 0
noise = torch.rand(1).item() / 100
while True:
    if iter_num % settings["eval_interval"] == 0:
        loss = 3 - iter_num / 1000 + settings["dropout"] + noise
        print(f"step {iter_num}: train loss {loss:.4f}, val loss {loss:.4f}")
        if iter_num > 0:
            torch.save({"iter_num": iter_num}, file)
    iter_num += 1
    if iter_num > settings["max_iters"]:
        break
"""
# As Lightning's example with a CSVLogger: dotted options, a new version per start.
LIGHTNING = """
import csv, os, random, sys

options = dict(word.removeprefix("--").split("=") for word in sys.argv[1:])
assert options["model.backbone"] == "Backbone"
assert options["trainer.logger"] == "CSVLogger"
random.seed(int(options["seed_everything"]))
root = os.path.join(options["trainer.logger.save_dir"], "lightning_logs")
os.makedirs(root, exist_ok=True)
folder = os.path.join(root, f"version_{len(os.listdir(root))}")
os.makedirs(folder)
rate, hidden = float(options["model.learning_rate"]), int(options["model.backbone.hidden_dim"])
names = ["epoch", "step", "train_loss_epoch", "valid_loss_epoch", "valid_loss_step"]
rows = []
for epoch in range(int(options["trainer.max_epochs"])):
    rows.append({"step": 3 * epoch, "valid_loss_step": random.random()})
    loss = 2 / (1 + epoch + 100 * rate + hidden / 128) + random.random() / 100
    rows.append({"epoch": epoch, "step": 10 * epoch + 9, "valid_loss_epoch": loss})
    rows.append({"epoch": epoch, "step": 10 * epoch + 9, "train_loss_epoch": loss})
    with open(os.path.join(folder, "metrics.csv"), "w", newline="") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows(rows)
"""
TIMM = """
import argparse, csv, os, random

parser = argparse.ArgumentParser()
for name in ("data-dir", "model", "device", "opt", "output", "experiment", "resume"):
    parser.add_argument(f"--{name}", default="")
for name in ("img-size", "num-classes", "epochs", "batch-size", "workers", "warmup-epochs", "seed"):
    parser.add_argument(f"--{name}", type=int)
for name in ("lr", "drop-path"):
    parser.add_argument(f"--{name}", type=float)
parser.add_argument("--model-kwargs", nargs="*")
args = parser.parse_args()
folder = os.path.join(args.output, args.experiment)
os.makedirs(folder, exist_ok=True)
last = os.path.join(folder, "last.pth.tar")
start = int(open(last).read()) + 1 if args.resume else 0
summary = os.path.join(folder, "summary.csv")
for epoch in range(start, args.epochs):
    random.seed(args.seed + 1000 * epoch)
    row = {"epoch": epoch, "train_loss": 1.0, "eval_loss": 1 / (1 + epoch),
           "eval_top1": 10.0 * epoch + 5 * (args.opt == "lion") + random.random(), "lr": args.lr}
    new = not os.path.exists(summary)
    with open(summary, "a", newline="") as stream:
        writer = csv.DictWriter(stream, row)
        if new:
            writer.writeheader()
        writer.writerow(row)
    with open(last, "w") as stream:
        stream.write(str(epoch))
"""
STAND_INS = {
    "pytorch-cifar": {"models/resnet.py": RESNET, "models/preact_resnet.py": PREACT},
    "convnext": {"models/convnext.py": CONVNEXT},
    "nanogpt": {"train.py": NANOGPT, "config/train_shakespeare_char.py": ""},
    "lightning": {"backbone_image_classifier.py": LIGHTNING},
    "timm": {"train.py": TIMM},
}


def test_each_project_has_a_stand_in_and_ten_lines_at_most() -> None:
    assert {path.name for path in PROJECTS.iterdir() if path.is_dir()} == set(STAND_INS)
    for name in STAND_INS:
        lines = [
            line
            for file in (PROJECTS / name).glob("*.py")
            for line in file.read_text().splitlines()
            if line.strip()
        ]
        assert len(lines) <= 10, name


@pytest.mark.proof
@pytest.mark.parametrize("name", STAND_INS)
def test_a_project_is_stopped_resumed_and_judged(
    name: str, tmp_path: Path, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests have modules of this name, and the benchmarks on the path. The folder
    # `models` of a project is no package, so that they would be found first.
    folders = [folder for folder in sys.path if Path(folder).name != "benchmarks"]
    monkeypatch.setattr(sys, "path", folders)
    for module in [module for module in sys.modules if module.startswith("models")]:
        monkeypatch.delitem(sys.modules, module)
    for file, text in STAND_INS[name].items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    for file in (PROJECTS / name).glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    (file,) = (PROJECTS / name).glob("*.yaml")
    text = file.read_text()
    if "cifar10" in text:
        text = re.sub("name: cifar10, .*}", "name: colours}", text)
        text = re.sub("epochs: 6", "epochs: 2", text)
        (tmp_path / "colours.py").write_text(
            "import ablate, numpy as np\n"
            "@ablate.dataset()\n"
            "def colours():\n"
            "    draw = np.random.default_rng(0)\n"
            "    x = draw.integers(0, 255, (60, 32, 32, 3), dtype=np.uint8)\n"
            "    return x[:40], np.arange(40) % 10, x[40:], np.arange(20) % 10\n"
        )
        registry.load_file(tmp_path / "colours.py")
    registry.load_file(tmp_path / "mine.py")
    declared = space.load(text, f"{file.stem}.yaml")
    hooks = stopping_after(4)
    first = pipeline.run(declared, file.name, options, hooks, make("inline"))
    assert first.interrupted
    outcome = pipeline.run(declared, file.name, options, None, make("inline"))
    assert outcome.failed == outcome.unfinished == 0, errors(options)
    study = Study(file.stem, options.url)
    assert all(effect.mean is not None for effect in study.effects())
    assert study.effects_table("rows").rows
    seeds = yaml.safe_load(text)["seeds"]
    assert all(len(cell.values) == seeds for cell in study.results().cells)
