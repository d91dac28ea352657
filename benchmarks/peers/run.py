"""The same short trials through other tools, each in an environment of its own.

    make bench-peers
    make bench-peers SEEDS=36

Every tool trains the same networks with the same seeds, two at a time, on the same
machine. A round runs each tool once. Ratios are medians over rounds, so a slow minute of
the machine changes at most one round. Times are relative to two bare processes, and include every
start-up, import and shutdown. None of the others stores epochs, counts costs, or
resumes a killed trial from a checkpoint here: what is compared is what a trial costs.
Each round starts with another tool, and one round that is not counted comes first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from machine import machine_text  # noqa: E402  (a neighbour of this folder)
from overhead import LEVELS, SLOTS, SPACE  # noqa: E402  (a neighbour of this folder)


@dataclass(frozen=True)
class Peer:
    """A tool.

    Attributes:
        script: what runs the trials; empty for ablate itself.
        package: what is installed in its environment; empty for ablate's own.
        distribution: the package whose version is printed.
    """

    name: str
    script: str
    package: str = ""
    distribution: str = ""


BARE = Peer("two bare processes", "bare.py")
PEERS = (
    BARE,
    Peer("ablate", ""),
    Peer("Ray core actors", "ray_actors.py", "ray[tune]", "ray"),
    Peer("Optuna, two processes", "optuna_processes.py", "optuna", "optuna"),
    Peer("Optuna, two threads", "optuna_threads.py", "optuna", "optuna"),
    Peer("a process for each trial", "subprocesses.py"),
    Peer("Ray Tune, function", "ray_tune.py", "ray[tune]", "ray"),
    Peer(
        "Syne Tune, local backend",
        "syne_tune_local.py",
        "syne-tune[basic]",
        "syne-tune",
    ),
)


def environments(folder: Path) -> dict[str, str]:
    """Installs each package in an environment of its own. Returns their interpreters.

    torch, timm and ablate are those of this environment, behind the peer's own packages.
    """
    uv = Path(sys.executable).with_name("uv")
    ours = [sysconfig.get_path("purelib"), str(HERE.parents[1])]
    pythons = {"": sys.executable}
    for number, package in enumerate(sorted({peer.package for peer in PEERS} - {""})):
        print(f"installing {package} ...", file=sys.stderr, flush=True)
        place = folder / str(number)
        subprocess.run(
            [uv, "venv", "-q", "--python", sys.executable, place], check=True
        )
        python = str(place / "bin" / "python")
        subprocess.run(
            [
                *(uv, "pip", "install", "-q", "--compile-bytecode"),
                *("--python", python, package),
            ],
            check=True,
        )
        (packages,) = place.glob("lib/python*/site-packages")
        (packages / "zz_ablate.pth").write_text("\n".join(ours) + "\n")
        pythons[package] = python
    return pythons


def version(python: str, distribution: str) -> str:
    """Returns the installed version of a package, such as "5.0.0"."""
    program = (
        f"from importlib.metadata import version; print(version({distribution!r}))"
    )
    ran = subprocess.run(
        [python, "-c", program], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def environment(home: str) -> dict[str, str]:
    """Variables of a tool. Every one may write bytecode."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    return {**kept, "PYTHONPATH": str(HERE), "HOME": home}


def seconds(peer: Peer, python: str, text: str, trials: int) -> float:
    """Wall seconds of all trials through a tool, in an empty folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, "space.yaml").write_text(text)
        command = [python, str(HERE / peer.script), str(trials), str(SLOTS)]
        if not peer.script:
            command = [python, "-m", "ablate", "run", "space.yaml"]
            command += ["--cpus", str(SLOTS), "--format", "json"]
        start = time.perf_counter()
        ran = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
        taken = time.perf_counter() - start
    if ran.returncode:
        raise SystemExit(f"{peer.name} failed:\n{ran.stdout}\n{ran.stderr}")
    return taken


def main(rounds: int, seeds: int) -> None:
    """Runs each tool once a round and prints the medians of their ratios."""
    trials = len(LEVELS) * seeds
    text = SPACE.format(levels=", ".join(LEVELS), seeds=seeds)
    taken: dict[str, list[float]] = {peer.name: [] for peer in PEERS}
    with tempfile.TemporaryDirectory() as folder:
        pythons = environments(Path(folder))
        versions = {
            peer.name: version(pythons[peer.package], peer.distribution)
            for peer in PEERS
            if peer.distribution
        }
        warm_up = SPACE.format(levels=", ".join(LEVELS), seeds=1)
        for peer in PEERS:
            seconds(peer, pythons[peer.package], warm_up, len(LEVELS))
        for number in range(rounds):
            first = number * len(PEERS) // max(1, rounds)
            for peer in (*PEERS[first:], *PEERS[:first]):
                found = seconds(peer, pythons[peer.package], text, trials)
                taken[peer.name].append(found)
                print(
                    f"round {number + 1}: {peer.name}: {found:.1f} s",
                    file=sys.stderr,
                    flush=True,
                )
    print("| tool | version | seconds | relative to bare processes |")
    print("|---|---|---|---|")
    for peer in PEERS:
        pairs = zip(taken[peer.name], taken[BARE.name], strict=True)
        ratio = statistics.median(own / bare for own, bare in pairs)
        print(
            f"| {peer.name} | {versions.get(peer.name, '')} |"
            f" {statistics.median(taken[peer.name]):.0f} | {ratio:.2f} |"
        )
    print(f"\n{trials} trials, {SLOTS} at a time, {rounds} rounds; {machine_text()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=12, help="seeds of each cell")
    given = parser.parse_args()
    main(given.rounds, given.seeds)
