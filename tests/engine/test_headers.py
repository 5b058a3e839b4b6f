"""Every method's file opens with a header that pages can be made from."""

import pytest

from engine.headers import Line, header, parse
from engine.methods import REGISTRY

SMALL = """Mean: the server takes the mean.

Somebody: A paper. 2020. https://example.org

    client   min CE(F(x), y)                                E epochs
             then nothing
    server   w = mean(w_k)
    use      F(x)

It is small. Readings: w is a vector. Deviations: none that matter.
"""


def test_a_header_is_taken_apart() -> None:
    found = parse(SMALL)
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


@pytest.mark.parametrize("name", REGISTRY)
def test_every_method_says_what_it_does_computes_and_answers_with(name: str) -> None:
    found = header(REGISTRY[name])
    assert found.purpose.startswith(REGISTRY[name].method.title)
    assert found.inference
    assert found.equations[0].label
