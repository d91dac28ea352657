"""Command-line arguments: files that are no files, options, names, and stores that are
none.
"""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

from ablate.space.load import LONGEST_NAME
from tests.attack.case import SPACE, Case
from tests.attack.cases_data import fifo, loop
from tests.attack.cases_documents import GOOD, changed, hollow
from tests.attack.stores import store, without

STORE = "store.db"
STATEMENTS = (
    "",
    ";",
    "SELECT",
    "SELEC 1",
    "SELECT 1; SELECT 2",
    "DELETE FROM trials",
    "DROP TABLE trials",
    "PRAGMA user_version = 3",
    "ATTACH 'x.db' AS x",
    "VACUUM INTO 'x.db'",
    "SELECT load_extension('x')",
    "SELECT 1 AS a, 2 AS a",
    "SELECT ?",
    "SELECT :x",
    "SELECT writefile('x', 'y')",
    "(" * 3000,
    "CREATE TEMP TABLE x (y)",
    "SELECT * FROM nothing",
    "--",
    "\udcff",
)
BROKEN = changed("[0, 1]", "[0, -1]")


def typed(*argv: str, says: str, **files: object) -> Case:
    """A case of what is typed beside a good space and a store."""
    return Case(
        name=f"ablate {' '.join(argv)[:70]}",
        says=says,
        argv=argv,
        files={SPACE: GOOD, STORE: store, **files},
    )


def asked(line: str, *more: str, says: str) -> Case:
    """A case of words of the command line, on the store."""
    return typed(*shlex.split(line), *more, "--store", STORE, says=says)


def stale(path: Path) -> None:
    """A socket that no process listens to."""
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def files() -> Iterator[Case]:
    """What is named as FILE and is no file."""
    irregular = "is not a regular file"
    for verb in ("plan", "cost", "run"):
        rest = ("--executor", "inline") if verb == "run" else ()
        for device in ("/dev/zero", "/dev/null", "/dev/random", "/dev/full"):
            yield Case(f"{verb} {device}", irregular, (verb, device, *rest))
        for name, content in (
            ("a folder", Path.mkdir),
            ("a FIFO", fifo),
            ("a socket", stale),
        ):
            yield Case(
                name=f"{verb} {name}",
                says=irregular,
                argv=(verb, SPACE, *rest),
                files={SPACE: content},
            )
        yield Case(f"{verb} standard input", irregular, (verb, "/dev/stdin", *rest))
        yield Case(
            name=f"{verb} a link to itself",
            says="cannot be read",
            argv=(verb, SPACE, *rest),
            files={SPACE: loop},
        )
        yield Case(
            f"{verb} nothing",
            "No such file or directory",
            (verb, "missing.yaml", *rest),
        )
        yield Case(
            f"{verb} a name of 5,000 characters",
            "cannot be read: File name too long",
            (verb, "x" * 5000, *rest),
        )
        yield Case(
            name=f"{verb} a file as a folder",
            says="cannot be read: Not a directory",
            argv=(verb, f"{SPACE}/x", *rest),
            files={SPACE: GOOD},
        )
        yield Case(
            name=f"{verb} a gigabyte",
            says="larger than 1,000,000 bytes",
            argv=(verb, SPACE, *rest),
            files={SPACE: hollow},
        )
        yield Case(f"{verb} a dash", "No such file or directory", (verb, "-", *rest))
        yield Case(f"{verb} nothing at all", "", (verb, "", *rest))
        odd = "a\udcff.yaml"
        yield Case(
            name=f"{verb} a name that is no text",
            says="no text; rename it",
            argv=(verb, odd, *rest),
            files={odd: GOOD},
        )
        odd = "a\nb.yaml"
        yield Case(
            name=f"{verb} a name of two lines",
            says="no text; rename it",
            argv=(verb, odd, *rest),
            files={odd: GOOD},
        )
        long = f"{'n' * 240}.yaml"
        yield Case(
            name=f"{verb} a name too long",
            says=f"at most {LONGEST_NAME} characters",
            argv=(verb, long, *rest),
            files={long: GOOD},
        )
        yield Case(
            name=f"{verb} a mistake",
            says=f"{SPACE}:4: ",
            argv=(verb, SPACE, *rest),
            files={SPACE: BROKEN},
        )
    for path in ("/proc/self/mem", "/proc/self/environ"):
        yield Case(f"plan {path}", path, ("plan", path))


def verbs() -> Iterator[Case]:
    """Verbs and options that are none, or of the wrong kind."""
    yield typed("paln", SPACE, says="No such command")
    yield typed("--verion", says="No such option")
    yield typed("", says="No such command")
    yield typed("x" * 5000, says="No such command")
    yield typed("\udcff", says="No such command")
    yield typed("\N{PARTY POPPER}", says="No such command")
    yield typed("plan", says="Missing argument")
    yield typed("plan", SPACE, SPACE, says="unexpected extra argument")
    yield typed("report", "x", "out.html", says="with --to out.html")
    yield typed("export", "x", "out.csv", says="with --to out.csv")
    for width in ("wide", "3.25px", "-3", "nan", "1e400", "3.25.1", ""):
        yield typed("plot", "x", "--width", width, says="is not a width; type one such")
    for width in ("0.5", "999cm", "9" * 400):
        yield typed("plot", "x", "--width", width, says="is from 1 to 50 inches wide")
    yield typed("plan", SPACE, "--cpu", "1", says="No such option")
    yield typed("plan", SPACE, "--cpus", says="requires an argument")
    for said in (
        "0",
        "-1",
        "1.5",
        "one",
        "",
        "nan",
        "1e3",
        "10001",
        "9" * 40,
        "9" * 5000,
        "\u0663x",
        "0x10",
    ):
        yield typed("plan", SPACE, "--cpus", said, says="--cpus")
    for said in ("-1", "half", "10001", "9" * 30):
        yield typed("run", SPACE, "--gpus", said, says="--gpus")
    for said in ("2", "0", "-5", "1001", "many", str(2**64)):
        yield typed(
            *"run space.yaml --executor inline --until-decided".split(),
            said,
            says="--until-decided",
        )
    for said in ("jsn", "JSON", "", "x" * 3000, "json,csv"):
        yield typed("plan", SPACE, "--format", said, says="--format")
    for said in ("rya", "", "Ray"):
        yield typed("run", SPACE, "--executor", said, says="--executor")
    yield typed("run", SPACE, "--log", "mlfow", says="--log")
    yield typed(
        *"run space.yaml --executor inline --ray-address auto".split(),
        says="goes with --executor ray",
    )
    yield typed(
        *"run space.yaml --ray-address auto --cpus 1".split(),
        says="are for this machine",
    )
    yield typed(
        "run",
        SPACE,
        "--executor",
        "inline",
        "--until-decided",
        "5",
        says="has a list of seeds",
        **{SPACE: listed()},
    )
    yield typed("dashboard", "--port", "0", says="--port")
    yield typed("dashboard", "--port", "99999", says="--port")
    for name in ("http://lab.example", "lab.example:8501", "[::1]", "", "a b", "*"):
        yield typed("dashboard", "--allow-host", name, says="--allow-host")
    yield typed("dashboard", "--token", "\x1b[2J", says="letters and digits")
    yield typed("schema", "x", says="unexpected extra argument")
    yield typed(
        "factors", "layuot", says="unknown factor 'layuot'; did you mean 'layout'?"
    )
    yield typed("factors", "x" * 100_000, says="unknown factor")
    yield typed("backbones", "swim", says="unknown family 'swim'; did you mean 'swin'?")
    yield typed("verify-costs", "augvit/table99", says="unknown paper or table")


def listed() -> str:
    """The good space with seeds that are listed."""
    return changed("seeds: 2", "seeds: [4, 5]")


def costs() -> Iterator[Case]:
    """One model's cost: names, levels and sizes."""
    name = "deit_tiny_patch16_224"
    yield typed("cost", says="name a space or a model")
    yield typed("cost", SPACE, "--model", name, says="name a space or a model")
    yield typed("cost", SPACE, "--set", "layout=parallel", says="are for --model only")
    yield typed("cost", SPACE, "--classes", "10", says="are for --model only")
    yield typed("cost", "--model", "", says="unknown backbone ''")
    yield typed("cost", "--model", "x" * 10_000, says="unknown backbone")
    yield typed("cost", "--model", "deit_tiny", says="did you mean")
    yield typed("cost", "--model", "\udcff", says="unknown backbone")
    yield typed("cost", "--model", "resnet5", says="unknown backbone")
    yield typed("cost", "--model", "vit", says="needs size.width")
    yield typed(
        "cost", "--model", name, "--operators", "--timing", says="use one at a time"
    )
    for said in ("0", "-1", "4097", "1000000000000", "9" * 40, "big"):
        yield typed("cost", "--model", name, "--image-size", said, says="--image-size")
    for said in ("0", "1000001", "9" * 30):
        yield typed("cost", "--model", name, "--classes", said, says="--classes")
    for said, says in (
        ("layout", "write FACTOR=LEVEL"),
        ("", "write FACTOR=LEVEL"),
        ("=", "unknown factor ''"),
        ("=parallel", "unknown factor ''"),
        ("layout=", "is not a level"),
        ("layout=paralel", "did you mean 'parallel'"),
        ("layout=[parallel]", "is not a level"),
        ("layout={a: b}", "is not a level"),
        ("layout=[", "not valid YAML"),
        ("layout=a: b", "not valid YAML"),
        ("layout=a\nlevel: b", "is a duplicate"),
        ("layout=!!python/name:os.system", "is not allowed"),
        ("layout=*a", "--set"),
        ("layout=&a [*a]", "refers to itself"),
        ("layout=\udcff", "--set"),
        ("layout=\x1b[31m", "--set"),
        (r'layout="\0"', "NUL"),
        ("layout=" + "x" * 100_000, "is not a level"),
        ("layout=" + "[" * 50_000, "nested deeper"),
        ("shortcuts.count=" + "9" * 60_000, "beyond 64 bits"),
        ("shortcuts.count=1e3", "is not a level"),
        ("shortcuts.count=true", "is not a level"),
        ("shortcuts.count=.nan", "is not a finite number"),
        ("shortcuts.b=2", "would change nothing"),
        ("size.depth=1000000000", "whole numbers from 1 to 1000"),
        ("size.width=191", "does not divide"),
        ("size.width=900000", "does not fit into this machine's memory"),
        ("size.mlp_ratio=1e30", "does not fit into this machine's memory"),
        ("size.patch_size=1000000000", "is not a level"),
        ("size.window=7", "cannot be changed on"),
        ("recipe.lr=1", "unknown factor 'recipe.lr'"),
        ("backbone=vit", "unknown factor 'backbone'"),
    ):
        yield typed("cost", "--model", name, "--set", said, says=says)
    yield typed(
        "cost",
        "--model",
        name,
        "--set",
        "layout=serial",
        "--set",
        "layout=parallel",
        says="is given twice",
    )


def gates() -> Iterator[Case]:
    """Rows that no verdict can be about."""
    for said in ("0", "-1", "x", "1.5"):
        yield typed("gate", "tiny", "--store", STORE, "--row", said, says="--row")
    yield asked("gate tiny", says="--row")
    yield asked("gate tiny --row 99", says="row 99")
    yield asked("gate tniy --row 1", says="'tiny'")


def stores() -> Iterator[Case]:
    """Stores and studies that are none."""
    for verb in (
        "table",
        "effects",
        "status",
        "report",
        "review",
        "pareto",
        "resume",
        "diagnose",
        "reproduce",
    ):
        yield typed(verb, "tiny", says="no store at runs/ablate.db")
        yield typed(verb, "x" * 3000, "--store", STORE, says="")
        yield typed(verb, "a\udcffb", "--store", STORE, says="")
        yield typed(verb, "'; DROP TABLE studies; --", "--store", STORE, says="")
    yield asked("table tniy", says="did you mean 'tiny'")
    yield asked("table tiny --group layuot", says="layuot")
    yield asked("table tiny --published", says="published")
    for said in ("nan", "inf", "-1", "x", "-nan", "1e400"):
        yield typed(
            "effects", "tiny", "--store", STORE, "--margin", said, says="--margin"
        )
    yield asked("effects tiny --of nothing", says="--of")
    yield asked("effects tiny --of importance --margin 1", says="--margin 1")
    for said in (
        "",
        "=",
        "top1",
        "top1=",
        "top1=up",
        "top2=max",
        "=max",
        "top1=max=min",
        "\udcff=max",
        "x" * 1000 + "=max",
    ):
        yield typed("pareto", "tiny", "--store", STORE, "--objective", said, says="")
    for said in ("x.jpg", "x", ".svg/x.txt", "", "x.SVGZ"):
        yield typed("plot", "tiny", "--store", STORE, "--to", said, says="")
    yield asked("plot tiny --to x.svg --row 99 --of curves", says="no row 99")
    yield asked(
        "plot tiny --to x.svg --row 999999999999999999999999999999 --of curves",
        says="no row",
    )
    yield asked("plot tiny --to x.svg --row 1", says="--row goes with")
    yield asked("plot tiny --to x.svg --metric top9", says="unknown --metric")
    yield asked("plot tiny --to x.svg --metric loss", says="--metric loss goes with")
    yield asked("plot tiny --to x.svg --cost watts", says="unknown --cost")
    yield asked(
        "plot tiny --to x.svg --diagnostic divresity", says="did you mean 'diversity'"
    )
    yield asked("report tiny --to x.txt", says="a report is an HTML file")
    yield asked("report tiny --to ''", says="a report is an HTML file")
    yield asked("export tiny --to ''", says="trials are written to")
    yield asked("export tiny", says="name exactly one destination")
    yield asked("export tiny --to x.xls", says="x.xls")
    yield asked(
        "export tiny --to x.csv --optuna sqlite:///o.db",
        says="name exactly one destination",
    )
    yield asked("diagnose tiny --name divresity", says="did you mean 'diversity'")
    yield asked("diagnose tiny --images 0", says="--images")
    yield asked("diagnose tiny --images 99999999999999999999", says="--images")
    yield asked("reproduce zzzz", says="zzzz")
    for number, statement in enumerate(STATEMENTS):
        yield Case(
            name=f"query {number}: {statement[:30]!r}",
            says="",
            argv=("query", statement, "--store", STORE),
            files={STORE: store},
        )
    for said in (
        "sqlite://",
        "sqlite:///:memory:",
        "http://example.org/x",
        "nothing://x",
        "://",
        "sqlite",
        "a/b/c.db",
        ".",
    ):
        yield Case(f"--store {said}", "store", ("table", "tiny", "--store", said))
    for name, content in (
        ("text", "hello"),
        ("empty", ""),
        ("a folder", Path.mkdir),
        ("a FIFO", fifo),
    ):
        yield Case(
            name=f"a store that is {name}",
            says=STORE,
            argv=("table", "tiny", "--store", STORE),
            files={STORE: content},
        )
    for said in ("/dev/null", SPACE, "x" * 5000):
        yield typed("table", "tiny", "--runs", said, says="")
    epochless = without("DELETE FROM epochs")
    for verb, *rest in (
        ("plot", "--to", "x.svg", "--of", "curves"),
        ("plot", "--to", "x.html", "--of", "curves"),
    ):
        yield Case(
            name=f"curves without epochs: {rest[1]}",
            says="no epoch",
            argv=(verb, "tiny", *rest, "--store", STORE),
            files={STORE: epochless},
        )


CASES = [*files(), *verbs(), *costs(), *gates(), *stores()]
