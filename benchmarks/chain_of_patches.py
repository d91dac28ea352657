"""Forty patches of a character model, proposed to a chain one after another.

    python benchmarks/chain_of_patches.py FOLDER

Builds a repository in FOLDER from examples/characters/train.py, and does what an agent
would do: change the present baseline, commit, ask the gate, and go back if the answer is
discard. Twenty patches change nothing that matters (comments, names, the seed, equivalent
arithmetic), twenty change something. The order is drawn once. Prints every decision, and
writes FOLDER/decisions.csv. It may be stopped and started again.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from machine import machine_text

SOURCE = Path(__file__).parents[1] / "examples/characters/train.py"
DECLARATION = '''"""The command that trains, for ablate."""

import ablate

train = ablate.command(
    "python train.py --seed {seed} --epochs {epochs}",
    metrics=[ablate.Metric("bits", digits=4, margin=0.005, direction="min")],
    pattern=r"epoch (?P<epoch>\\d+): .* test (?P<bits>[\\d.]+) bits",
)
'''
EPOCHS = 4
ORDER = 45
# Characters of the reference that comes with Python.
LENGTH = 60_000


@dataclass(frozen=True)
class Patch:
    """A change of train.py: texts and what replaces them.

    Attributes:
        kind: comment, name, seed or arithmetic change nothing that matters; the others
            change the training.
    """

    name: str
    kind: str
    changes: tuple[tuple[str, str], ...]

    def apply(self, text: str) -> str:
        for old, new in self.changes:
            if text.count(old) < 1:
                raise ValueError(f"{self.name}: {old!r} is not in train.py")
            text = text.replace(old, new)
        return text


def first_text() -> str:
    """The script of the first baseline: its text lies beside it, and it prints more."""
    text = SOURCE.read_text()
    for old, new in (
        (
            'Path(__file__).parents[2] / "LICENSE"',
            'Path(__file__).with_name("text.txt")',
        ),
        (
            "{loss:.3f} bits, test {learner.evaluate(test):.3f}",
            "{loss:.3f} bits, test {learner.evaluate(test):.6f}",
        ),
        (
            "torch.manual_seed(said.seed)",
            "torch.set_num_threads(1)\n    torch.manual_seed(said.seed)",
        ),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text


def patch(name: str, kind: str, *changes: tuple[str, str]) -> Patch:
    return Patch(name, kind, changes)


PATCHES = (
    # Nothing changes.
    patch(
        "comment-context",
        "comment",
        ("CONTEXT = 48", "# Characters that the model sees.\nCONTEXT = 48"),
    ),
    patch("comment-batch", "comment", ("BATCH = 32", "BATCH = 32  # texts")),
    patch(
        "docstring-block",
        "comment",
        (
            "class Block(nn.Module):",
            'class Block(nn.Module):\n    """Attention and a perceptron."""\n',
        ),
    ),
    patch(
        "docstring-learner",
        "comment",
        (
            '"""A model and its optimiser."""',
            '"""A model, its optimiser, and how both are saved."""',
        ),
    ),
    patch(
        "blank-lines",
        "comment",
        ("        x = x + self.out(", "\n        x = x + self.out("),
    ),
    patch(
        "name-hidden",
        "name",
        ("hidden = ", "inner = "),
        ("F.relu(hidden)", "F.relu(inner)"),
        ("F.gelu(hidden)", "F.gelu(inner)"),
        ("self.down(hidden)", "self.down(inner)"),
    ),
    patch(
        "name-total",
        "name",
        ("total = 0.0", "summed = 0.0"),
        ("total += ", "summed += "),
        ("return total / STEPS", "return summed / STEPS"),
    ),
    patch(
        "name-starts",
        "name",
        ("starts = torch", "begins = torch"),
        ("text[starts +", "text[begins +"),
    ),
    patch(
        "name-rows",
        "name",
        ("rows = len(text)", "lines = len(text)"),
        ("text[: rows *", "text[: lines *"),
        (".view(rows, -1)", ".view(lines, -1)"),
    ),
    patch(
        "name-mixed",
        "name",
        ("mixed = F.", "seen = F."),
        ("mixed.transpose", "seen.transpose"),
    ),
    patch(
        "seed-plus-1000",
        "seed",
        ("manual_seed(said.seed)", "manual_seed(said.seed + 1000)"),
    ),
    patch(
        "seed-times-7",
        "seed",
        ("manual_seed(said.seed", "manual_seed(7 + 7 * said.seed"),
    ),
    patch(
        "seed-xor",
        "seed",
        (
            "    model = CharacterModel(characters, said.norm",
            "    torch.manual_seed(said.seed ^ 12345)\n"
            "    model = CharacterModel(characters, said.norm",
        ),
    ),
    patch(
        "seed-again",
        "seed",
        (
            "    learner = Learner(model, said.lr)",
            "    torch.manual_seed(said.seed + 77)\n    learner = Learner(model, said.lr)",
        ),
    ),
    patch(
        "seed-drawn",
        "seed",
        (
            "    learner = Learner(model, said.lr)",
            "    torch.rand(1)\n    learner = Learner(model, said.lr)",
        ),
    ),
    patch(
        "log2",
        "arithmetic",
        ("return nats / math.log(2)", "return nats * (1 / math.log(2))"),
    ),
    patch(
        "add-zero",
        "arithmetic",
        ("nats = F.cross_entropy(", "nats = 0.0 + F.cross_entropy("),
    ),
    patch(
        "halves",
        "arithmetic",
        ("loss.backward()", "(0.5 * loss + 0.5 * loss).backward()"),
    ),
    patch(
        "einsum",
        "arithmetic",
        (
            "return self.head(self.blocks(x))",
            "return torch.einsum('blw,cw->blc', self.blocks(x), self.head.weight) + self.head.bias",
        ),
    ),
    patch(
        "thirds",
        "arithmetic",
        ("logits = model(tokens[:, :-1])", "logits = 3 * (model(tokens[:, :-1]) / 3)"),
    ),
    # Something changes.
    patch("rate-twice", "change", ("default=3e-3", "default=6e-3")),
    patch(
        "rate-tenth",
        "change",
        ("lr=lr)", "lr=lr / 10)"),
    ),
    patch(
        "rotary", "change", ('positions: str = "learned"', 'positions: str = "rotary"')
    ),
    patch("qk-norm", "change", ("qk_norm: bool = False,", "qk_norm: bool = True,")),
    patch(
        "rms-norm", "change", ('"--norm", default="layer"', '"--norm", default="rms"')
    ),
    patch(
        "relu2",
        "change",
        ('"--activation", default="gelu"', '"--activation", default="relu2"'),
    ),
    patch("tied", "change", ("tied: bool = False", "tied: bool = True")),
    patch("deeper", "change", ("depth: int = 2", "depth: int = 3")),
    patch(
        "narrow-mlp",
        "change",
        (
            "4 * width), nn.Linear(4 * width, width)",
            "2 * width), nn.Linear(2 * width, width)",
        ),
    ),
    patch("wider", "change", ("width: int = 64", "width: int = 96")),
    patch("one-head", "change", ("Block(width, 4, norm", "Block(width, 1, norm")),
    patch(
        "small-init",
        "change",
        (
            "        if tied:\n",
            "        nn.init.zeros_(self.head.weight)\n        if tied:\n",
        ),
    ),
    patch(
        "clip",
        "change",
        (
            "            self.optimizer.step()",
            "            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n"
            "            self.optimizer.step()",
        ),
    ),
    patch("no-decay", "change", ("lr=lr", "weight_decay=0.0, lr=lr")),
    patch(
        "betas",
        "change",
        ("AdamW(model.parameters(),", "AdamW(model.parameters(), betas=(0.9, 0.95),"),
    ),
    patch(
        "smoothing",
        "change",
        (
            "tokens[:, 1:].flatten())",
            "tokens[:, 1:].flatten(), label_smoothing=0.1 * model.training)",
        ),
    ),
    patch(
        "dropout",
        "change",
        (
            "mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
            "mixed = F.scaled_dot_product_attention(\n"
            "            q, k, v, is_causal=True, dropout_p=0.2 * self.training\n        )",
        ),
    ),
    patch("residual-scale", "change", ("x = x + self.out(", "x = x + 0.5 * self.out(")),
    patch("small-batch", "change", ("BATCH = 32", "BATCH = 16")),
    patch("large-batch", "change", ("(BATCH, 1)", "(2 * BATCH, 1)")),
)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def chain(folder: Path, action: str, *words: str) -> dict[str, object]:
    """What `ablate chain` answers."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "ablate", "chain", action, "characters"),
            *(*words, "--with", "mine.py", "--format", "json"),
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not done.stdout.strip():
        raise SystemExit(f"the chain failed with {done.returncode}")
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def make_repository(folder: Path) -> None:
    """Makes the repository, with the first baseline as its only commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    text = "".join(topics[name] for name in sorted(topics))[:LENGTH]
    (folder / "train.py").write_text(first_text())
    (folder / "mine.py").write_text(DECLARATION)
    (folder / "text.txt").write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first baseline")
    chain(folder, "begin", "main", "--epochs", str(EPOCHS))


def propose(folder: Path, patch: Patch) -> dict[str, object]:
    """Commits a patch of the present baseline, and asks the gate."""
    script = folder / "train.py"
    script.write_text(patch.apply(script.read_text()))
    git(folder, "commit", "--quiet", "--all", "--message", patch.name)
    git(folder, "tag", "--force", patch.name)
    answer = chain(folder, "propose", patch.name, "--executor", "local")
    if answer["decision"] != "keep":
        git(folder, "reset", "--quiet", "--hard", "HEAD~1")
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if not folder.exists():
        make_repository(folder)
    decided = folder / "decisions.csv"
    names = ["patch", "kind", "decision", "seeds", "difference", "evidence", "needed"]
    names += ["trials", "reason"]
    known: list[str] = []
    if decided.exists():
        known = [row["patch"] for row in csv.DictReader(decided.open())]
    order = list(PATCHES)
    random.Random(ORDER).shuffle(order)
    for each in order:
        if each.name in known:
            continue
        answer = propose(folder, each)
        row = {"patch": each.name, "kind": each.kind}
        row |= {name: answer[name] for name in names[2:]}
        is_new = not decided.exists()
        with decided.open("a", newline="") as file:
            writer = csv.DictWriter(file, names)
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print(f"{each.name} ({each.kind}): {answer['decision']}, {answer['reason']}")
    print(chain(folder, "confirm", "--executor", "local"))
    for line in report(list(csv.DictReader(decided.open()))):
        print(line)
    print(f"\nCommand: `benchmarks/chain_of_patches.py FOLDER`, {machine_text()}.")


def report(rows: list[dict[str, str]]) -> Iterator[str]:
    """The decisions as a table, and how many of each kind were kept."""
    yield "| # | patch | kind | decision | seeds | mean difference (bits) | trials |"
    yield "| ---: | --- | --- | --- | ---: | ---: | ---: |"
    for number, row in enumerate(rows, start=1):
        difference = row["difference"]
        shown = f"{float(difference):+.4f}" if difference else ""
        yield (
            f"| {number} | {row['patch']} | {row['kind']} | {row['decision']} |"
            f" {row['seeds']} | {shown} | {row['trials']} |"
        )
    yield ""
    for kind in dict.fromkeys(each.kind for each in PATCHES):
        mine = [row for row in rows if row["kind"] == kind]
        kept = [row for row in mine if row["decision"] == "keep"]
        trials = sum(int(row["trials"]) for row in mine)
        yield f"{kind}: {len(kept)} of {len(mine)} kept, {trials} trials."


if __name__ == "__main__":
    main()
