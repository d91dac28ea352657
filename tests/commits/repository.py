"""A small repository with a training script, for tests."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

SCRIPT = """
import argparse
import json
import random

from model import gain

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--epochs", type=int)
asked = parser.parse_args()
noise = random.Random(f"{asked.seed} {gain()}").gauss(0, 0.1)
for epoch in range(1, asked.epochs + 1):
    print(json.dumps({"epoch": epoch, "accuracy": gain() + noise}), flush=True)
"""
DECLARATION = """
import ablate

train = ablate.command(
    "python train.py --seed {seed} --epochs {epochs}", metrics={"accuracy": "max"}
)
"""
MODEL = "def gain():\n    return 1.0\n"
SPACE = """
question: Which commit is best?
trainer: train
factors: {commit: [main, better]}
seeds: 3
recipe: {epochs: 2}
"""


def git(folder: Path, *words: str, stdin: str | bytes = b"") -> str:
    """Runs git as its user would, and returns what it prints."""
    text = stdin.encode() if isinstance(stdin, str) else stdin
    environment = {
        **{name: word for name, word in os.environ.items() if name[:4] != "GIT_"},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env=environment,
        input=text,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().strip()


def make_repository(folder: Path) -> Path:
    """Returns a repository with the branches main, better and comment; main is checked out."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, {"train.py": SCRIPT, "model.py": MODEL, "mine.py": DECLARATION})
    commit(folder, "first")
    branch(folder, "better", {"model.py": MODEL.replace("1.0", "2.0")})
    branch(folder, "comment", {"model.py": f"# The gain.\n{MODEL}"})
    return folder


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def commit(folder: Path, message: str) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def branch(folder: Path, name: str, texts: dict[str, str], base: str = "main") -> str:
    """Commits files on a new branch, and returns to main."""
    git(folder, "checkout", "--quiet", "-b", name, base)
    write(folder, texts)
    made = commit(folder, name)
    git(folder, "checkout", "--quiet", "main")
    return made


def state(folder: Path) -> dict[str, str]:
    """The content of every file of a checkout, those of .git included."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
