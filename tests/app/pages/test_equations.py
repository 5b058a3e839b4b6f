"""Equations in plain letters become formulas, and words stay words."""

import pytest

from app.pages.equations import Node, typeset
from engine import catalogue
from engine.methods import REGISTRY


def text(node: Node) -> str:
    if node.tag == "mspace":
        return " "
    return node.text if not node.children else f"{node.tag[1:]}({' '.join(map(text, node.children))})"


def shown(line: str) -> list[str]:
    runs = [(run.words, run.formula) for run in typeset(line)]
    return [words or ("$" + " ".join(map(text, formula.children)) if formula else "") for words, formula in runs]


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("θ^t = Σ w_k θ_k", ["$sup(θ t) = Σ sub(w k)   sub(θ k)"]),
        ("E epochs of  min CE(F(x), y)", ["$E", "epochs of", "$min   CE ( F ( x ) , y )"]),
        ("w_k ← w^{t-1};  a copy", ["$sub(w k) ← sup(w row(t − 1))", ";", "a copy"]),
        ("λ > 1e-6", ["$λ > 1e-6"]),
        ("Phase 2 passes (as one tensor). Then θ", ["Phase 2 passes (as one tensor). Then", "$θ"]),
        ("starts at 1, then α = 2 β", ["starts at 1, then", "$α = 2   β"]),
        ("x̂ = ã_j/τ", ["$x̂ = sub(ã j) / τ"]),
        ("c_i⁺ = ‖w‖²", ["$subsup(c i +) = ‖ w sup(‖ 2)"]),
        ("Σ_{k∈S^t} n_k", ["$sub(Σ row(k ∈ sup(S t))) sub(n k)"]),
    ],
)
def test_a_line_is_typeset(line: str, runs: list[str]) -> None:
    assert [" ".join(run.split()) for run in shown(line)] == [" ".join(run.split()) for run in runs]


@pytest.mark.parametrize("name", REGISTRY)
def test_no_letter_of_an_equation_is_lost(name: str) -> None:
    def letters(node: Node) -> str:
        return node.text + "".join(map(letters, node.children))

    for line in catalogue.method_header(name).equations:
        printed = "".join(run.words + (letters(run.formula) if run.formula else "") for run in typeset(line.text))
        kept = {sign for sign in line.text if sign.isalnum() and sign.isascii()}
        assert kept <= set(printed) | set("2"), line
