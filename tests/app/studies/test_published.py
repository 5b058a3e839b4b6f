"""Published numbers are complete and readable."""

from app.studies.published import about, papers, statements
from engine.methods import REGISTRY


def test_every_statement_has_an_id_of_its_own_and_a_known_paper_and_method() -> None:
    rows = statements()
    assert len({row.id for row in rows}) == len(rows) > 800
    assert {row.paper for row in rows} <= set(papers())
    assert {row.method for row in rows} - {None} <= set(REGISTRY)


def test_there_is_a_value_exactly_where_the_status_says_so() -> None:
    assert [row.id for row in statements() if (row.value is None) == (row.status == "value")] == []


def test_the_accuracies_of_a_method_are_percentages() -> None:
    values = [row.value for row in about("pfedafm") if row.value is not None]
    assert values
    assert all(0 < value <= 100 for value in values)
    assert {row.unit for row in about("pfedafm")} == {"percent"}
