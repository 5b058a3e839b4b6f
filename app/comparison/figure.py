"""The comparison as a printed figure: PDF and SVG by matplotlib, PGF as a pgfplots picture that needs no LaTeX here."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from app.comparison.curves import MeanCurve
from app.comparison.palette import Style, method_style
from app.tex import tex

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["pdf", "svg", "pgf"]
X_TITLES = {
    "round": "Communication round",
    "bytes": "Communication (bytes)",
    "flops": "Client computation (FLOP)",
    "seconds": "Wall time (s)",
}
Y_TITLES = {"accuracy": "Test accuracy (%)", "loss": "Training loss"}
UNITS = {"bytes": "B", "flops": "FLOP", "seconds": "s"}
WIDTH, HEIGHT = 3.5, 2.6
"""Inches: one column of a two-column paper."""
MOST_IN_LEGEND_INSIDE = 8

# matplotlib keeps its settings in one place for the whole process
_drawing = Lock()


@dataclass(frozen=True)
class Frame:
    """What is on the axes."""

    x: str
    y: str
    target: float | None = None
    log_x: bool = False
    log_y: bool = False

    @property
    def scale(self) -> float:
        """Accuracies are printed in per cent."""
        return 100.0 if self.y == "accuracy" else 1.0


def draw(lines: Sequence[MeanCurve], frame: Frame, kind: Kind) -> bytes:
    """The file's content."""
    return pgfplots(lines, frame).encode() if kind == "pgf" else _matplotlib(lines, frame, kind)


def _matplotlib(lines: Sequence[MeanCurve], frame: Frame, kind: str) -> bytes:
    # here and not above: it takes half a second, and most servers never print a figure
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator

    settings: Any = {  # its type lists every key there is
        "font.size": 8,
        "axes.linewidth": 0.6,
        "pdf.fonttype": 42,  # text stays text, as many publishers ask
        "svg.fonttype": "none",
        "svg.hashsalt": "fedarena",
    }
    with _drawing, matplotlib.rc_context(settings):
        outside = len(lines) > MOST_IN_LEGEND_INSIDE
        picture = Figure(figsize=(WIDTH + (1.6 if outside else 0), HEIGHT), layout="constrained")
        axes = picture.add_subplot()
        for line in lines:
            _draw_line(axes, line, frame)
        if frame.target is not None:
            axes.axhline(frame.target * frame.scale, color="#5d646e", linewidth=0.6, linestyle=(0, (3, 3)), zorder=1)
        axes.set_xlabel(X_TITLES[frame.x])
        axes.set_ylabel(Y_TITLES[frame.y])
        axes.set_xscale("log" if frame.log_x else "linear")
        axes.set_yscale("log" if frame.log_y else "linear")
        if frame.x in UNITS:
            axes.xaxis.set_major_formatter(EngFormatter(UNITS[frame.x]))
            axes.set_xlabel(X_TITLES[frame.x].split(" (")[0])
        elif not frame.log_x:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#e3e5e8", linewidth=0.5)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if lines and outside:
            picture.legend(loc="outside right center", frameon=False, fontsize=7, handlelength=2.6)
        elif lines:
            axes.legend(loc="best", frameon=False, fontsize=7, handlelength=2.6, labelspacing=0.3)
        content = io.BytesIO()
        # without a date the same data give the same file
        picture.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else {"Date": None})
    return content.getvalue()


def _draw_line(axes: "Axes", line: MeanCurve, frame: Frame) -> None:
    style = method_style(line.group.method, line.group.variant)
    points = _visible(line, frame)
    xs = [x for x, _, _ in points]
    ys = [y for _, y, _ in points]
    dash = (0, tuple(part / 2 for part in style.dash)) if style.dash else "solid"
    axes.plot(xs, ys, color=style.colour, linestyle=dash, linewidth=1.1, label=line.group.label)
    if any(spread is not None for _, _, spread in points):
        low = [y - (spread or 0.0) for _, y, spread in points]
        high = [y + (spread or 0.0) for _, y, spread in points]
        axes.fill_between(xs, low, high, color=style.colour, alpha=0.15, linewidth=0)


def _visible(line: MeanCurve, frame: Frame) -> list[tuple[float, float, float | None]]:
    """Points in the units of the axes; a logarithm has no place for zero."""
    found = []
    for x, y, spread in zip(line.x, line.y, line.std, strict=True):
        value = y * frame.scale
        if (frame.log_x and x <= 0) or (frame.log_y and value <= 0):
            continue
        found.append((x, value, None if spread is None else spread * frame.scale))
    return found


def pgfplots(lines: Sequence[MeanCurve], frame: Frame) -> str:
    r"""A picture to \input: its preamble needs \usepackage{pgfplots} and \usepgfplotslibrary{fillbetween}."""
    options = [
        "width=\\columnwidth",
        "height=0.72\\columnwidth",
        f"xlabel={{{tex(X_TITLES[frame.x])}}}",
        f"ylabel={{{tex(Y_TITLES[frame.y])}}}",
        "xmode=log" if frame.log_x else "xmode=normal",
        "ymode=log" if frame.log_y else "ymode=normal",
        "ymajorgrids",
        "axis lines=left",
        "legend pos=outer north east" if len(lines) > MOST_IN_LEGEND_INSIDE else "legend pos=south east",
        "legend style={draw=none, fill=none, font=\\scriptsize, cells={anchor=west}}",
    ]
    out = [
        "% \\usepackage{pgfplots} \\usepgfplotslibrary{fillbetween} \\pgfplotsset{compat=1.18}",
        "\\begin{tikzpicture}",
        *(
            f"\\definecolor{{fedarena{place}}}{{HTML}}{{{_style(line).colour[1:].upper()}}}"
            for place, line in enumerate(lines)
        ),
        f"\\begin{{axis}}[{', '.join(options)}]",
    ]
    for place, line in enumerate(lines):
        points = _visible(line, frame)
        if any(spread is not None for _, _, spread in points):
            for edge, sign in (("low", -1), ("high", 1)):
                around = " ".join(f"({x:.6g},{y + sign * (spread or 0.0):.6g})" for x, y, spread in points)
                out.append(f"\\addplot[draw=none, forget plot, name path={edge}{place}] coordinates {{{around}}};")
            out.append(
                f"\\addplot[fedarena{place}, opacity=0.15, forget plot] fill between[of=low{place} and high{place}];"
            )
        pattern = _pattern(_style(line))
        centre = " ".join(f"({x:.6g},{y:.6g})" for x, y, _ in points)
        out.append(f"\\addplot[fedarena{place}, line width=0.9pt{pattern}] coordinates {{{centre}}};")
        out.append(f"\\addlegendentry{{{tex(line.group.label)}}}")
    if frame.target is not None:
        ends = [x for line in lines for x, _, _ in _visible(line, frame)] or [0.0, 1.0]
        level = frame.target * frame.scale
        out.append(
            f"\\addplot[gray, dashed, forget plot] coordinates {{({min(ends):.6g},{level:.6g}) "
            f"({max(ends):.6g},{level:.6g})}};"
        )
    return "\n".join([*out, "\\end{axis}", "\\end{tikzpicture}", ""])


def _style(line: MeanCurve) -> Style:
    return method_style(line.group.method, line.group.variant)


def _pattern(style: Style) -> str:
    if not style.dash:
        return ""
    on_off = " ".join(f"on {a / 2:g}pt off {b / 2:g}pt" for a, b in list(pairwise(style.dash))[::2])
    return f", dash pattern={on_off}"
