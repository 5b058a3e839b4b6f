import pytest

from app import advice
from engine.data.errors import DataDamaged, DataMissing, Remedy
from engine.spec.problems import Problem

FETCH = Remedy("cifar10", "fetch")
IMPORT = Remedy("pacs", "import", "https://publisher.example")


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        (FETCH, "it is missing; fetch it with: fedarena data get cifar10"),
        (
            IMPORT,
            "it is missing; get it from its publisher (https://publisher.example), unpack it and import it with: "
            "fedarena data import pacs --from FOLDER",
        ),
    ],
)
def test_a_missing_data_set_comes_with_the_command(remedy: Remedy, words: str) -> None:
    problem = Problem("dataset.name", "it is missing", remedy.name, remedy=remedy)
    assert advice.sentence(DataMissing("it is missing", remedy)) == words
    assert str(advice.with_command(problem)) == f"dataset.name: {words}"


def test_other_problems_are_left_as_they_are() -> None:
    problem = Problem("clients", "must be 2, but got 3", 3)
    assert advice.with_command(problem) is problem
    assert advice.sentence(DataDamaged("it is cut off")) == "it is cut off"
    assert advice.sentence(DataMissing("it is built in")) == "it is built in"


def test_without_the_service_a_problem_says_what_to_do_and_no_command() -> None:
    assert str(Problem("dataset.name", "it is missing", "cifar10", remedy=FETCH)) == (
        "dataset.name: it is missing; fetch it"
    )
