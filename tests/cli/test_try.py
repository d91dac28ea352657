"""`ablate try`: one trial in this process, and nothing stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Say

SPACE = """
question: Does it work?
backbone: {family: vit, patch_size: 4, width: 8, depth: 1, heads: 2}
factors: {shortcuts.count: [0, 1], shortcuts.b: [1, 3]}
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 3, batch_size: 10, warmup_epochs: 0}
seeds: 2
"""
TRAINER = """
import torch
import ablate

@ablate.trainer(factors={"width": [4, 8]}, metrics={"loss": "min"})
def mlp(trial):
    net = torch.nn.Linear(8, trial.levels["width"])
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in trial.epochs():
        for _ in range(6):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
        print("printed by the trainer")
        if trial.levels["width"] == 8 and epoch == 2:
            raise ValueError("broken here")
        trial.report(loss=loss.item())
"""
OWN = "question: q?\ntrainer: mlp\nfactors: {width: [4, 8]}\nrecipe: {epochs: 3}\n"
SCRIPT = """
import sys
print("the script trains", sys.argv[1:])
assert sys.argv[1] != "8", "broken here"
sys.exit(3)
"""
COMMAND = """
import ablate
script = ablate.command("python script.py {width} {seed} {epochs} {output}",
    factors={"width": [4, 8]}, metrics={"loss": "min"})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(SPACE)
    return tmp_path


def shell(folder: Path, *words: str, typed: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ablate", *words],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_trial_is_trained_and_nothing_is_stored(folder: Path, say: Say) -> None:
    code, out, err = say("try", "mine.yaml", "--row", "2", "--seed", "1")
    assert code == 0, err
    assert "row 2, seed 1: " in err
    assert [line[:8] for line in out.splitlines()] == [
        f"epoch {number}:" for number in (1, 2, 3)
    ]
    assert not (folder / "runs").exists()
    code, out, _ = say("try", "mine.yaml", "--epochs", "1")
    assert (code, len(out.splitlines())) == (0, 1)


def test_it_is_the_trial_of_a_run(folder: Path, say: Say) -> None:
    assert say("run", "mine.yaml", "--executor", "inline")[0] == 0
    code, stored, _ = say(
        "query",
        "SELECT m.value FROM epoch_metrics m JOIN cell_trials t ON t.trial_hash ="
        " m.trial_hash JOIN cells c ON c.id = t.cell_id WHERE m.name = 'train_loss'"
        " AND c.number = 0 AND t.seed = 1 ORDER BY m.epoch",
        "--format",
        "csv",
    )
    assert code == 0
    _, out, _ = say("try", "mine.yaml", "--seed", "1")
    values = [
        float(line.split("train_loss ")[1].split()[0]) for line in out.splitlines()
    ]
    assert values == pytest.approx(
        [float(line) for line in stored.splitlines()[1:]], rel=1e-5
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--row", "8"], "--row 8: the plan has the rows 0 to 3"),
        (["--row", "1"], "--row 1: it trains the same as row 0"),
        (["--row", "3"], "--row 3: it is not trained: "),
        (["--seed", "2"], "--seed 2: the seeds of the space are 0, 1"),
        (["--epochs", "0"], "--epochs"),
    ],
)
def test_a_trial_that_does_not_exist(
    folder: Path, say: Say, words: list[str], message: str
) -> None:
    code, _, err = say("try", "mine.yaml", *words)
    assert code == 2
    assert message in err


@pytest.mark.proof
def test_a_profile(folder: Path) -> None:
    code, out, err = shell(
        folder, "try", "mine.yaml", "--epochs", "2", "--profile", "trace.json"
    )
    assert code == 0, err
    assert "Optimizer.step" in out
    assert "wrote trace.json" in err
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any("linear" in str(event.get("name")) for event in events)
    (folder / "mine.yaml").write_text(
        SPACE.replace("batch_size: 10", "batch_size: 100")
    )
    code, _, err = shell(
        folder, "try", "mine.yaml", "--epochs", "1", "--profile", "short.json"
    )
    assert code == 2
    assert "--profile: too few steps" in err


@pytest.mark.proof
def test_the_error_of_a_trainer_and_its_debugger(folder: Path) -> None:
    (folder / "fn.yaml").write_text(OWN)
    (folder / "fn.py").write_text(TRAINER)
    words = ("try", "fn.yaml", "--with", "fn.py", "--row", "1")
    code, out, err = shell(folder, *words)
    assert code == 1
    assert out.startswith("epoch 1: loss ")
    assert "printed by the trainer" in err
    assert err.rstrip().endswith("ValueError: broken here")
    code, out, _ = shell(folder, *words, "--pdb", typed="p trial.levels\nq\n")
    assert code == 1
    assert "{'width': 8}" in out


def test_a_message_is_no_traceback(folder: Path, say: Say) -> None:
    text = SPACE.replace("{name: digits, train_images: 100, test_images: 50}", "mnist")
    (folder / "mine.yaml").write_text(text)
    code, _, err = say("try", "mine.yaml")
    assert code == 2
    assert "mnist" in err
    assert "Traceback" not in err


@pytest.mark.proof
def test_a_breakpoint_of_the_user(folder: Path) -> None:
    (folder / "fn.yaml").write_text(OWN)
    broken = TRAINER.replace("        print(", "        breakpoint()\n        print(")
    (folder / "fn.py").write_text(broken)
    words = ("try", "fn.yaml", "--with", "fn.py", "--epochs", "1")
    code, out, err = shell(folder, *words, typed="p epoch + 41\nc\n")
    assert code == 0, err
    assert "(Pdb) 42" in out + err


@pytest.mark.proof
def test_a_command_shows_its_lines_and_the_epochs_in_them(folder: Path) -> None:
    (folder / "fn.yaml").write_text(OWN.replace("mlp", "script"))
    (folder / "fn.py").write_text(COMMAND)
    (folder / "script.py").write_text(SCRIPT)
    words = ("try", "fn.yaml", "--with", "fn.py")
    code, out, err = shell(folder, *words, "--epochs", "7")
    assert code == 2
    assert "the script trains ['4', '0', '7', " in out
    assert "trainer script ended with status 3" in err
    # Under the debugger it has the terminal.
    code, out, _ = shell(
        folder, *words, "--row", "1", "--pdb", typed="p sys.argv[1]\nq\n"
    )
    assert "'8'" in out
    code, _, err = shell(folder, *words, "--profile", "x.json")
    assert code == 2
    assert "this trainer is a command" in err
    # What the pattern finds is shown; what it does not find, is said.
    (folder / "script.py").write_text(
        "for step in (100, 200):\n    print(f'step {step}: val loss {step / 7:.2f}')\n"
    )
    pattern = "pattern=r'step (?P<epoch>[0-9]+): val loss (?P<loss>[0-9.]+)'"
    good = COMMAND.replace(
        'metrics={"loss": "min"}', f'metrics={{"loss": "min"}}, {pattern}'
    )
    (folder / "fn.py").write_text(
        good.replace(pattern, f"{pattern}, first=100, every=100")
    )
    code, out, err = shell(folder, *words, "--epochs", "2")
    assert code == 0, err
    assert "step 100: val loss 14.29\n" in out
    assert "epoch 2: loss 28.57 (" in out
    (folder / "fn.py").write_text(good)
    code, _, err = shell(folder, *words, "--epochs", "2")
    assert code == 2
    assert "reported epoch 100 after epoch 0" in err
    assert "first= and every= declare how the script counts" in err
    (folder / "fn.py").write_text(good.replace("val loss", "val_loss"))
    code, _, err = shell(folder, *words, "--epochs", "2")
    assert code == 2
    assert "no line of its output completes loss as pattern= says" in err


NETWORK = """
import ablate
from torch import nn

class Block(nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, kernel, padding=kernel // 2)
        self.kernel = kernel

    def forward(self, x):
        if self.kernel == 5:
            MISTAKE
        return self.conv(x).mean((2, 3))

@ablate.backbone(image_size=8, factors={"kernel": [3, 5]})
def mini(image_size, channels, classes, kernel):
    return nn.Sequential(Block(kernel), nn.Linear(4, classes))
"""
MINI = """
question: q?
name: mini
backbone: mini
factors: {kernel: [3, 5]}
data: {name: digits, train_images: 100, test_images: 50}
recipe: {epochs: 1, batch_size: 50, warmup_epochs: 0}
seeds: 1
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    ("mistake", "error", "is_refused"),
    [
        ("return self.bais", "AttributeError: 'Block' object has no attribute", True),
        ("raise ValueError('boom')", "ValueError: boom", False),
    ],
)
def test_an_error_in_an_own_network_is_shown_where_it_is(
    mistake: str, error: str, is_refused: bool, folder: Path
) -> None:
    """A mistake stops the plan, a ValueError is a row that does not fit. The debugger
    opens at both.
    """
    (folder / "net.py").write_text(NETWORK.replace("MISTAKE", mistake))
    (folder / "mini.yaml").write_text(MINI)
    words = ("mini.yaml", "--with", "net.py")
    code, out, err = shell(folder, "plan", *words)
    assert code == (2 if is_refused else 0)
    assert error in out + err
    assert "(net.py:13)" in out + err
    words = ("try", *words, "--row", "1")
    code, out, err = shell(folder, *words)
    assert code == 1
    assert "Traceback" in err
    assert "in forward" in err
    code, out, err = shell(folder, *words, "--pdb", typed="p self.kernel + 37\nq\n")
    assert code == 1
    assert "(Pdb) 42" in out + err
