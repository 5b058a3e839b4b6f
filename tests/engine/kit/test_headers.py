"""Every method's file opens with a header that pages can be made from."""

import pytest

from engine.kit.contract import Method
from engine.kit.headers import Line, Source, header, parse
from engine.methods import REGISTRY

SMALL = """Mean: the server takes the mean.

Somebody: A paper. arXiv 2020. https://example.org

    client   min CE(F(x), y)                                E epochs
             then nothing
    server   w = mean(w_k)
    use      F(x)

It is small. Readings: w is a vector. Deviations: none that matter.
"""


def test_a_header_is_taken_apart() -> None:
    found = parse(SMALL)
    assert found.title == "Mean"
    assert found.source == Source("A paper", "Somebody", "arXiv", 2020, "https://example.org")
    assert found.purpose == "Mean: the server takes the mean."
    assert found.equations == (
        Line("client", "min CE(F(x), y)", "E epochs"),
        Line("", "then nothing", ""),
        Line("server", "w = mean(w_k)", ""),
        Line("use", "F(x)", ""),
    )
    assert (found.notes, found.readings) == ("It is small.", "W is a vector.")
    assert found.deviations == "None that matter."
    assert found.inference == "F(x)"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("A, B: On: Colons. Some Journal 13, 2022.", Source("On: Colons", "A, B", "Some Journal", 2022)),
        ("Mean: Of One Name. Under review, 2025.", Source("Mean: Of One Name", "", "Under review", 2025)),
        ("A: T. AAAI 2025; first version https://a.b/1", Source("T", "A", "AAAI", 2025, "https://a.b/1")),
        ("A: A Workshop's. NeurIPS workshop X 2018.", Source("A Workshop's", "A", "NeurIPS workshop X", 2018)),
        ("A: Not Yet Published. 2026.", Source("Not Yet Published", "A", "", 2026)),
        ("Nobody wrote it down.", Source("Nobody wrote it down")),
    ],
)
def test_a_source_is_authors_paper_venue_year_and_link_as_far_as_there_are_any(text: str, source: Source) -> None:
    assert parse(f"Mean (of all): it is.\n\n{text}\n\n    use   F(x)\n").source == source


def test_without_a_source_the_equations_come_first() -> None:
    assert parse("Mean: it is.\n\n    use   F(x)\n").source == Source("")


def test_a_file_without_a_header_is_no_method() -> None:
    with pytest.raises(ValueError, match="must open with a docstring"):
        Method.of(None, shares="nothing", family="standalone")


@pytest.mark.parametrize("name", REGISTRY)
def test_every_header_names_its_source_completely(name: str) -> None:
    source = REGISTRY[name].method.source
    assert source == header(REGISTRY[name]).source
    if name == "standalone":
        return
    assert source.venue
    assert 2016 <= (source.year or 0) <= 2026
    assert source.authors or name == "fedarc", "which is under review"
    assert source.link.startswith("https://") or name in {"fedarc", "compfl"}, "which nobody has online"
