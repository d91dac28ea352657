"""Runs the long proofs that a change can affect: `python .ci/proofs.py`.

A change is what differs from the commit that `.ci/passed` names, in which everything has
passed. With FULL=1, or without that file, or where its commit is no ancestor, all proofs
run. `make full` writes the file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASSED = Path(__file__).with_name("passed")


@dataclass(frozen=True)
class Proofs:
    """Long tests, and what they guard.

    Attributes:
        tests: folders below tests/; of their tests, those that are no part of `make test`.
        guards: folders below ablate/; other folders with a slash; files.
        command: what else runs, as `make verify-costs`.
    """

    tests: tuple[str, ...]
    guards: tuple[str, ...]
    command: tuple[str, ...] = ()


# The cheapest ones first.
ALL = {
    "pages": Proofs(
        tests=("browser", "cli", "docs", "hostile", "wheel"),
        guards=(
            *("cli", "results", "report", "store", "trained"),
            *("dashboards/", "docs/", "examples/", "search_spaces/"),
            *("README.md", "CONTRIBUTING.md"),
        ),
    ),
    "statistics": Proofs(
        tests=("benchmarks", "elsewhere", "plan", "property", "report"),
        guards=(
            *("plan", "readers", "report", "results", "scheduling", "statistics"),
            "benchmarks/",
        ),
    ),
    "networks": Proofs(
        tests=(
            *("audit", "contract", "cost", "diagnostics", "families", "heads"),
            *("layers", "models", "published", "published_code"),
        ),
        guards=(
            *("audit", "backbones", "contracts", "cost", "diagnostics", "factors"),
            *("families", "heads", "layers", "models", "published", "search_spaces/"),
        ),
        command=("make", "verify-costs"),
    ),
    "training": Proofs(
        tests=("data", "own", "space", "tasks", "training"),
        guards=("data", "heads", "learning", "models", "own", "tasks", "training"),
    ),
    "execution": Proofs(
        tests=("commits", "execution", "faults", "store"),
        guards=(
            *("execution", "learning", "machine", "own", "plan", "scheduling"),
            *("store", "trained", "training"),
        ),
    ),
}
# Everything rests on these folders, so a change of one runs all proofs, like a change of
# any file that no proof names.
FOUNDATIONS = ("records", "space", "text")
# These files affect no proof; these folders have none.
HARMLESS = (".ci/passed", "CHANGELOG.md", "LICENSE")
QUICK = ("tests/attack/", "tests/golden/", "tests/gpu/", "tests/language/", "runs/")
# What pytest returns where no test is chosen.
NO_TESTS = 5


def output(*command: str) -> str:
    """What a command prints; empty where it fails."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def changed() -> list[str] | None:
    """The files that differ from the commit that has passed; None: it is unknown."""
    if os.environ.get("FULL") == "1" or not PASSED.exists():
        return None
    commit = PASSED.read_text().strip()
    if output("git", "merge-base", commit, "HEAD") != commit:
        return None
    names = output("git", "diff", "--name-only", commit).splitlines()
    untracked = output("git", "ls-files", "--others", "--exclude-standard")
    return [*names, *untracked.splitlines()]


def affected(files: list[str] | None) -> list[str]:
    """The names of the proofs that a change of files can affect."""
    if files is None:
        return list(ALL)
    found = set[str]()
    for file in files:
        if file in HARMLESS or file.startswith(QUICK):
            continue
        names = [name for name, proofs in ALL.items() if touches(file, proofs)]
        found.update(names or ALL)
    return [name for name in ALL if name in found]


def touches(file: str, proofs: Proofs) -> bool:
    """Whether a file is one of the tests, or of what they guard."""
    places = [f"tests/{folder}/" for folder in proofs.tests]
    for guarded in proofs.guards:
        is_part = "/" not in guarded and "." not in guarded
        places.append(f"ablate/{guarded}/" if is_part else guarded)
    return file.startswith(tuple(places))


def run(*command: str, **environment: str) -> None:
    """Runs a command. Ends with its exit code if it fails."""
    print("+", " ".join(command), flush=True)
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, check=False
    )
    if done.returncode not in (0, NO_TESTS):
        sys.exit(done.returncode)


def main() -> None:
    files = changed()
    names = affected(files)
    for name in ALL:
        what = (
            "run" if name in names else "are left out: no file that they guard changed"
        )
        print(f"proofs of {name} {what}", flush=True)
    chosen = [ALL[name] for name in names]
    folders = [f"tests/{folder}" for proofs in chosen for folder in proofs.tests]
    if not folders:
        return
    pytest = (sys.executable, "-m", "pytest", "-q")
    run(
        *(*pytest, "-n", "2", "--dist", "worksteal", "-m"),
        *("(browser or proof) and not ray and not gpu", *folders),
        OMP_NUM_THREADS="1",
        SLOWEST="build/slowest-proofs.txt",
    )
    for proofs in chosen:
        if proofs.command:
            run(*proofs.command)
    # They have the machine to themselves.
    run(*pytest, "-m", "ray", *folders, SLOWEST="build/slowest-ray.txt")


if __name__ == "__main__":
    main()
