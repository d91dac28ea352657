"""The table as papers print it: every number, label and note of it, and that it compiles."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ablate.errors import AblateError, UnknownName
from ablate.execution.simulated import SimulatedExecutor
from ablate.pipeline import Options
from ablate.records import Metric, StudyResults
from ablate.report.best_rows import best_rows
from ablate.report.effects import effects
from ablate.report.paper_table import PaperStyle, labels_of, paper_table
from ablate.results.study import Study
from tests.benchmarks import load
from tests.conftest import TINY, RunText
from tests.report.test_effects import study
from tests.report.test_tables import GOLDEN, RESULTS

PACKAGES = "\\usepackage{booktabs,threeparttable}\n"
# The classes of two publishers, and LaTeX's own in one and two columns.
CLASSES = (
    "\\documentclass{article}\n",
    "\\documentclass[twocolumn]{article}\n",
    "\\documentclass[conference]{IEEEtran}\n",
    "\\documentclass{llncs}\n",
)


@pytest.fixture(scope="module")
def trust() -> ModuleType:
    return load("trust")


def bold(results: StudyResults) -> frozenset[int]:
    return best_rows(results, effects(results, 1.0))


def rows_of(text: str) -> list[list[str]]:
    """The cells of the body."""
    body = text.split("\\midrule", 1)[1].split("\\bottomrule", maxsplit=1)[0]
    lines = [line for line in body.splitlines() if line.strip().endswith("\\\\")]
    return [[cell.strip() for cell in line[:-2].split("&")] for line in lines]


def headings_of(text: str) -> list[str]:
    line = text.split("\\toprule\n", 1)[1].splitlines()[0]
    return [cell.strip(" \\") for cell in line.split("&")]


def test_bytes_of_a_table() -> None:
    file = GOLDEN / "paper_table.tex"
    text = paper_table(RESULTS, PaperStyle())
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_numbers_are_aligned_and_signs_are_signs(trust: ModuleType) -> None:
    text = paper_table(
        study(trust, [[80.0, 81, 82], [60.0, 90, 99], [81.0, 82.01, 83.02]]),
        PaperStyle(columns=("top1", "delta"), bold="best"),
    )
    (_, zero), (mean, one), (_, two) = rows_of(text)
    assert zero == "ref."
    assert mean == r"$\mathbf{83.00 \pm 20.42}$"
    assert r"\pm \phantom{0}1.00" in text
    assert one == "$+2.00$"
    assert two == "$+1.01$"
    assert "-" not in text.split("\\midrule")[1].split("\\bottomrule")[0]


def test_a_sure_difference_has_a_star_without_width(trust: ModuleType) -> None:
    results = study(trust, [[80.0, 81, 82], [90.0, 91.1, 92], [70.0, 71, 72.1]])
    text = paper_table(results, PaperStyle(columns=("delta",)))
    assert rows_of(text)[1:] == [
        [r"$+10.03$\rlap{$^{*}$}"],
        [r"$-9.97$\rlap{$^{*}$}"],
    ]
    assert r"$^{*}$ p $<$ 0.05" in text


def test_all_that_cannot_be_distinguished_from_the_best_is_bold(
    trust: ModuleType,
) -> None:
    generator = np.random.default_rng(1)
    noise = generator.normal(0, 0.3, (5, 6))
    means = np.array([80.0, 84.0, 84.1, 78.0, 84.0])[:, None]
    results = study(trust, (means + noise).tolist())
    assert bold(results) == {1, 2, 4}
    turned = study(trust, (-(means + noise)).tolist())
    assert bold(replace(turned, direction="min")) == {1, 2, 4}
    # The reference is the best.
    first = study(trust, (means + noise)[[2, 1, 0, 3]].tolist())
    assert bold(first) == {0, 1}


def test_the_reference_is_bold_unless_the_best_row_has_a_star(
    trust: ModuleType,
) -> None:
    values = [
        [80.47, 80.08, 79.28],
        [79.89, 79.94, 79.93],
        [79.61, 79.47, 79.4],
        [81.2, 81.85, 81.3],
        [79.23, 79.05, 79.12],
    ]
    results = study(trust, values)
    found = effects(results, 1.0)
    assert found[2].verdict not in ("helps", "hurts")
    assert 0 in bold(results)


def test_a_row_with_one_seed_is_not_bold_beside_the_best(trust: ModuleType) -> None:
    results = study(trust, [[80.0, 81, 80.5], [10.0, 0, 0], [82.0, 82.9, 82.2]])
    del results.cells[1].values[1]
    del results.cells[1].values[2]
    assert 1 not in bold(results)


def test_factors_may_have_the_names_of_columns(trust: ModuleType) -> None:
    levels = [
        {"delta": "a", "published": "x", "top1": 1},
        {"delta": "b", "published": "y", "top1": 2},
    ]
    results = study(trust, [[1.0, 2], [2.0, 3]], levels)
    text = paper_table(results, PaperStyle(), published={0: 5.0})
    assert headings_of(text)[:5] == [
        "delta",
        "published",
        "top1",
        "top-1 (\\%)",
        "$\\Delta$",
    ]
    assert rows_of(text)[0][:3] == ["a", "x", "1"]
    assert rows_of(text)[0][4] == "ref."
    assert rows_of(text)[0][-1] == "5"


def test_keys_of_references_differ(trust: ModuleType) -> None:
    results = study(trust, [[1.0, 2], [2.0, 3]])
    keys = set()
    for name in ("日本", "中文", "über_ff", "a/b"):
        text = paper_table(replace(results, name=name), PaperStyle())
        keys.add(text.partition("\\label{")[2].partition("}")[0])
    assert len(keys) == 4
    assert "tab:a/b" in keys


def test_without_noise_only_the_best_is_bold(trust: ModuleType) -> None:
    assert bold(study(trust, [[80.0], [82.0], [81.0]])) == {1}
    assert bold(study(trust, [[80.0, 80], [82.0, 82], [81.0, 81]])) == {1}
    assert bold(study(trust, [[80.0], [82.0], [82.0]])) == {1, 2}
    # Best with one seed: nothing says that it is better.
    results = study(trust, [[80.0, 81], [82.0, 83], [84.0, 85]])
    del results.cells[2].values[1]
    assert bold(results) == {0, 1, 2}
    text = paper_table(study(trust, [[80.0], [82.0]]), PaperStyle(bold="best"))
    assert "Bold: the best mean." in text
    assert "over one seed" in text


def test_columns_whose_rows_are_equal_are_left_out(trust: ModuleType) -> None:
    levels = [{"a.b": 1, "c": "x"}, {"a.b": 2, "c": "x"}]
    results = study(trust, [[1.0, 2], [2.0, 3]], levels)
    text = paper_table(results, PaperStyle())
    assert headings_of(text)[:3] == ["a b", "top-1 (\\%)", "$\\Delta$"]
    assert "over 2 seeds" in text
    uneven = study(trust, [[1.0, 2], [2.0, 3]], levels)
    del uneven.cells[1].values[1]
    assert "$n$" in headings_of(paper_table(uneven, PaperStyle()))
    assert "over $n$ seeds" in paper_table(uneven, PaperStyle())
    chosen = PaperStyle(columns=("c", "top1", "row"))
    assert [row[0] for row in rows_of(paper_table(results, chosen))] == ["x", "x"]


def test_labels_caption_and_key(trust: ModuleType) -> None:
    levels = [{"ffn.kernel": "none"}, {"ffn.kernel": 3}]
    results = study(trust, [[1.0, 2], [2.0, 3]], levels)
    labels = labels_of(
        ["ffn.kernel=$k$", "ffn.kernel:none=no = 0", "top1=Top-1", "delta=Gain"]
    )
    style = PaperStyle(labels=labels, caption="A \\emph{caption}", label="tab:x")
    text = paper_table(results, style)
    assert headings_of(text)[:3] == ["$k$", "Top-1", "Gain"]
    assert [row[0] for row in rows_of(text)] == ["no = 0", "3"]
    assert r"\caption{A \emph{caption}}" in text
    assert r"\label{tab:x}" in text
    assert r"\label{tab:made-up}" in paper_table(results, PaperStyle())


@pytest.mark.parametrize("word", ["", "a", "=a", "a="])
def test_a_word_that_is_no_label(word: str) -> None:
    with pytest.raises(AblateError, match="is not a label; write COLUMN=LABEL"):
        labels_of([word])


@pytest.mark.parametrize(
    ("style", "words"),
    [
        (PaperStyle(columns=("top",)), "unknown column 'top'"),
        (PaperStyle(labels={"cells": "x"}), "unknown label 'cells'"),
        (PaperStyle(labels={"shortcuts.b:7": "x"}), "unknown label 'shortcuts.b:7'"),
        (PaperStyle(group="nothing"), "unknown factor 'nothing'"),
    ],
)
def test_unknown_names_are_named(style: PaperStyle, words: str) -> None:
    with pytest.raises(UnknownName, match=words):
        paper_table(RESULTS, style)


def test_groups_are_divided_by_a_line() -> None:
    text = paper_table(RESULTS, PaperStyle(group="shortcuts.b"))
    assert text.count("\\midrule") == 4


def test_the_smallest_difference_of_a_cost_is_shown(trust: ModuleType) -> None:
    names = trust.names(3)
    for flops, shown in (
        ([4_610_000_000, 4_616_000_000, 4_900_000_000], ["4.610", "4.616", "4.900"]),
        ([4_610_000_000, 4_610_000_000, 4_900_000_000], ["4.6", "4.6", "4.9"]),
        ([1_000_000, 1_000_001, 90_000_000], ["1.000", "1.000", "90.000"]),
        ([5, 5, 5], ["0.005", "0.005", "0.005"]),
    ):
        results = trust.made([[1.0, 2]] * 3, names, flops)
        text = paper_table(results, PaperStyle(columns=("flops",)))
        assert [row[0] for row in rows_of(text)] == shown


@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="needs Debian's texlive-latex-extra and texlive-publishers",
)
@pytest.mark.parametrize("kind", CLASSES)
def test_it_compiles_unedited(kind: str, tmp_path: Path, trust: ModuleType) -> None:
    hostile = {"a_b%": "#1 {x} \\input{/etc/passwd} $& ~^"}
    tables = [
        paper_table(RESULTS, PaperStyle()),
        paper_table(RESULTS, PaperStyle(group="shortcuts.b", label="tab:b", wide=True)),
        paper_table(
            study(trust, [[1.0, 2], [2.0, 3]], [hostile, {"a_b%": "[*"}]),
            PaperStyle(
                label="tab:c",
                labels={"a_b%": "[x]", "a_b%:[*": "*y", "delta": "[2ex]"},
            ),
        ),
    ]
    text = "\n".join(
        [kind + PACKAGES + "\\begin{document}", *tables, "\\end{document}"]
    )
    (tmp_path / "table.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "multiply defined" not in done.stdout


def test_other_metrics_are_columns_without_verdicts(
    run_text: RunText, options: Options
) -> None:
    run_text(TINY, SimulatedExecutor())
    study_ = Study("tiny", options.url)
    frame = study_.frame()
    style = PaperStyle(columns=("shortcuts.count", "top1", "loss", "top5"))
    text = study_.paper_table(style)
    assert headings_of(text)[2:] == ["loss", r"top-5 (\%)"]
    for number, row in enumerate(rows_of(text)):
        losses = frame[frame["cell"] == number]["loss"]
        assert row[2] == rf"${losses.mean():.4f} \pm {losses.std():.4f}$"
        assert "mathbf" not in row[2] + row[3]
    assert "Other metrics: the same seeds, not tested." in text
    # They are printed on demand only.
    usual = study_.paper_table()
    assert "loss" not in headings_of(usual)
    assert "Other metrics" not in usual
    with pytest.raises(UnknownName, match="did you mean 'loss'"):
        study_.paper_table(PaperStyle(columns=("los",)))


def test_a_metric_that_seeds_lack_is_not_averaged(trust: ModuleType) -> None:
    results = replace(
        study(trust, [[80.0, 81, 82], [83.0, 84, 86]]),
        metrics=(
            Metric("top1", "top-1 (%)", " points", 2, direction="max"),
            Metric("delta", digits=1, direction="min"),
        ),
    )
    style = PaperStyle(columns=("top1", "delta", "delta_"))
    text = paper_table(results, style, others={"delta": {0: [1.0, 2, 3], 1: [1.0, 2]}})
    assert headings_of(text) == [r"top-1 (\%)", "delta", r"$\Delta$"]
    first, then = rows_of(text)
    assert first[1] == r"$2.0 \pm 1.0$"
    assert then[1] == "--"
    # A metric of this name does not take the place of the difference.
    usual = paper_table(results, PaperStyle(), others={"delta": {0: [1.0], 1: [1.0]}})
    assert r"$\Delta$" in headings_of(usual)
