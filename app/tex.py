"""Text for LaTeX: what it would take as a command, or print as another sign, is written the way it wants."""

_MATHS = {
    "<": "<", ">": ">", "|": "|", "±": r"\pm", "−": "-", "·": r"\cdot", "×": r"\times", "→": r"\to", "←": r"\gets",
    "≤": r"\le", "≥": r"\ge", "≠": r"\ne", "≈": r"\approx", "∞": r"\infty", "∈": r"\in", "²": "^2",
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "δ": r"\delta", "ε": r"\varepsilon", "ζ": r"\zeta", "η": r"\eta",
    "θ": r"\theta", "ι": r"\iota", "κ": r"\kappa", "λ": r"\lambda", "μ": r"\mu", "\u00b5": r"\mu", "ν": r"\nu",
    "ξ": r"\xi", "π": r"\pi", "ρ": r"\rho", "σ": r"\sigma", "τ": r"\tau", "υ": r"\upsilon", "φ": r"\varphi",
    "χ": r"\chi", "ψ": r"\psi", "ω": r"\omega", "Γ": r"\Gamma", "Δ": r"\Delta", "Θ": r"\Theta", "Λ": r"\Lambda",
    "Ξ": r"\Xi", "Π": r"\Pi", "Σ": r"\Sigma", "Φ": r"\Phi", "Ψ": r"\Psi", "Ω": r"\Omega",
}  # fmt: skip

_WORDS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "—": "---",
    "…": r"\ldots{}", "†": r"\dag{}", "“": "``", "”": "''", "\u2018": "`", "’": "'", "\u00a0": "~", "\u202f": r"\,",
}  # fmt: skip

LETTERS = {
    **_WORDS,
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"${maths}$" for letter, maths in _MATHS.items()},
}
"""How each is written; the pages have it in their vocabulary."""


def tex(text: str) -> str:
    return "".join(LETTERS.get(letter, letter) for letter in text)
