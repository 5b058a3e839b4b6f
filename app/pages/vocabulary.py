"""What browser and server both know, said once: it stands in every page, for static/js/vocabulary.js."""

from functools import cache
from typing import Any

from app.comparison.groups import NOT_COMPARED, TITLES
from app.comparison.palette import palette
from app.store.states import RETRIED, State
from app.tex import LETTERS
from engine import catalogue
from engine.records import CONVERGENCE_MARGIN, NO_CONVERGENCE


@cache
def vocabulary() -> dict[str, Any]:
    return {
        "states": [
            {"id": state, "title": state_title(state), "ended": state.is_finished(), "retried": state in RETRIED}
            for state in State
        ],
        "palette": palette(),
        "traces": {
            method["id"]: {
                trace["name"]: {"title": trace["title"], "unit": trace["unit"]} for trace in method["traces"]
            }
            for method in catalogue.catalogue(None)["algorithms"]
        },
        "latex": LETTERS,
        "partition_letters": dict(catalogue.partition_symbols()),
        "no_convergence": NO_CONVERGENCE,
        "convergence_margin": CONVERGENCE_MARGIN,
        "part_titles": TITLES,
        "not_compared": sorted(NOT_COMPARED),
    }


def state_title(state: State) -> str:
    return state.replace("_", " ").capitalize()
