"""Equations written in plain letters, such as `θ^t = Σ w_k θ_k`, as MathML trees that a template prints.

The method files hold their equations in this form, so that they read like the paper without being rendered. Words stay
words: `E epochs of  min CE(F(x), y)` becomes the text "epochs of" between two formulas.
"""

import re
import unicodedata
from dataclasses import dataclass

MARKS = {"\u0302", "\u0304", "\u0303"}
"""Hat, bar and tilde over a letter: x̂, z̄, ã."""

FUNCTIONS = {
    "CE",
    "KL",
    "MSE",
    "Lf",
    "Lkd",
    "min",
    "max",
    "argmin",
    "log",
    "exp",
    "softmax",
    "onehot",
    "sg",
    "mean",
    "TGP",
}
_SPACED = {"mo", "mspace"}
RAISED = {"²": "2", "⁺": "+"}
_TOKEN = re.compile(r"[A-Za-z]+[0-9]*|[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?|\.\.|.", re.DOTALL)
_PROSE = re.compile(r"^\(?(?:[A-Z]?[a-zü'’-]+|ReLU|Adam|BatchNorm)[,;:.]?\)?[,;:.]?$")
_ENDS = ",;:."


@dataclass(frozen=True)
class Node:
    """An element of MathML: its tag with either text or children; `marked` is a letter with a sign over it."""

    tag: str
    text: str = ""
    children: tuple["Node", ...] = ()


_THIN = Node("mspace")


@dataclass(frozen=True)
class Run:
    """A piece of a line: plain words, or a formula."""

    words: str = ""
    formula: Node | None = None


def typeset(line: str) -> list[Run]:
    """The line as runs of words and formulas."""
    runs: list[Run] = []
    words: list[str] = []
    formula: list[str] = []

    def flush() -> None:
        if words:
            runs.append(Run(words=" ".join(words)))
        if formula:
            runs.extend(_formula(" ".join(formula)))
        words.clear()
        formula.clear()

    for piece in re.split(r"\s{2,}", line):
        tokens = piece.split()
        kinds = [_is_prose(token) for token in tokens]
        for index, (token, prose) in enumerate(zip(tokens, kinds, strict=True)):
            article = token in {"a", "A"} and index + 1 < len(kinds) and kinds[index + 1]
            counted = bool(words) and token.rstrip(_ENDS).isdigit()  # "phase 2 passes": a number of the sentence
            if (prose or article or counted) and _closed(formula):
                if formula:
                    flush()
                words.append(token)
            else:
                if words:
                    flush()
                formula.append(token)
        flush()
    return runs


def _closed(formula: list[str]) -> bool:
    """Words inside an open bracket belong to the formula."""
    text = " ".join(formula)
    return text.count("(") <= text.count(")")


def _is_prose(token: str) -> bool:
    bare = token.strip("(),;:.")
    return bool(_PROSE.match(token)) and len(bare) > 1 and bare not in FUNCTIONS


def _formula(text: str) -> list[Run]:
    """The formula, and behind it the mark of punctuation that belongs to the sentence."""
    mark = text[-1] if text[-1] in _ENDS else ""
    body = text[: len(text) - len(mark)]
    runs = [Run(formula=Node("mrow", children=tuple(_parse(body)[0])))] if body else []
    return [*runs, Run(words=mark)] if mark else runs


def _parse(text: str, end: str = "") -> tuple[list[Node], int]:
    """Nodes up to the closing brace, and the position behind it."""
    nodes: list[Node] = []
    place = 0
    while place < len(text):
        letter = text[place]
        if letter == end:
            return nodes, place + 1
        if letter in "_^" and nodes:
            place += 1
            if text[place : place + 1] == "{":
                inner, used = _parse(text[place + 1 :], "}")
                place += 1 + used
                script = inner[0] if len(inner) == 1 else Node("mrow", children=tuple(inner))
            else:
                token = _TOKEN.match(text, place)
                assert token is not None, "an index must follow its sign"
                place = token.end()
                place, script = _marked(text, place, _leaf(token[0]))
            nodes.append(_attach(nodes.pop(), "sub" if letter == "_" else "sup", script))
            continue
        if letter in RAISED and nodes:
            nodes.append(_attach(nodes.pop(), "sup", _leaf(RAISED[letter])))
            place += 1
            continue
        if letter == " ":
            place += 1
            if nodes and nodes[-1].tag not in _SPACED:
                nodes.append(_THIN)
            continue
        token = _TOKEN.match(text, place)
        assert token is not None, "any letter is a token"
        place, node = _marked(text, token.end(), _leaf(token[0]))
        if node.tag == "mo" and nodes and nodes[-1] is _THIN:
            nodes.pop()  # an operator brings its own space
        nodes.append(node)
    return nodes, place


def _marked(text: str, place: int, node: Node) -> tuple[int, Node]:
    """A letter with its hat, bar or tilde is one sign; not every font can stretch a bar over a letter."""
    parts = unicodedata.normalize("NFD", node.text)
    if len(parts) == 2 and parts[1] in MARKS:
        return place, Node("marked", node.text)
    if place < len(text) and text[place] in MARKS:
        return place + 1, Node("marked", node.text + text[place])
    return place, node


def _attach(base: Node, side: str, script: Node) -> Node:
    """An index and a power on one letter stand above each other."""
    if base.tag == "msub" and side == "sup":
        return Node("msubsup", children=(*base.children, script))
    if base.tag == "msup" and side == "sub":
        return Node("msubsup", children=(base.children[0], script, base.children[1]))
    return Node(f"m{side}", children=(base, script))


def _leaf(sign: str) -> Node:
    if sign[0].isdigit() or sign in {"½"}:
        return Node("mn", sign)
    if sign[0].isalpha() and sign not in {"Σ", "Π"}:
        return Node("mi", sign)
    return Node("mo", {"-": "−", "..": "…", "'": "′"}.get(sign, sign))
