"""What a record says of a run with another number of rounds T, its horizon: a shorter run begins a longer one.

Where no round's work depends on T (`ExperimentSpec.depends_on_rounds`), two specs that differ in `rounds` alone compute
the same, and all their common records are equal but one: the last round of the shorter run. It is always tested, under
protocol C on all clients, and a method may leave further traces there (`Trace.last_round_only`). Tests change nothing
of what is trained, so the state after that round is the same too.
"""

from engine.methods import REGISTRY
from engine.records import RoundRecord
from engine.runtime.evaluation import everyone_is_tested, is_due
from engine.spec.experiment import ExperimentSpec


class Untellable(Exception):
    """The other run's record does not follow from this one: a sentence that says why."""


def at_horizon(record: RoundRecord, spec: ExperimentSpec, rounds: int) -> RoundRecord:
    """A record of this spec as a run of so many rounds has it; Untellable: it must be computed."""
    is_last, will_be_last = record.round == spec.rounds, record.round == rounds
    if is_last == will_be_last:
        return record
    return _made_last(record, spec) if will_be_last else _no_longer_last(record, spec, rounds)


def _made_last(record: RoundRecord, spec: ExperimentSpec) -> RoundRecord:
    number, evaluation = record.round, spec.evaluation
    if not is_due(evaluation, number, spec.rounds):
        raise Untellable(
            f"the last round is always tested, but round {number} of {spec.rounds} was not, because evaluation.every "
            f"is {evaluation.every}"
        )
    everyone_now = _tests_everyone(spec, number, spec.rounds)
    if not everyone_now and _tests_everyone(spec, number, number) and len(record.client_accuracy) < spec.clients:
        raise Untellable(
            f"protocol {evaluation.protocol} tests all {spec.clients} clients in the last round, but round {number} "
            f"of {spec.rounds} was tested on {len(record.client_accuracy)}"
        )
    method, names = REGISTRY[spec.algorithm.name].method, ", ".join(sorted(_last_traces(spec)))
    if names:
        raise Untellable(
            f"{method.title} notes {names} in its last round, which round {number} of {spec.rounds} is not"
        )
    return record


def _last_traces(spec: ExperimentSpec) -> set[str]:
    return {trace.name for trace in REGISTRY[spec.algorithm.name].method.traces if trace.last_round_only}


def _tests_everyone(spec: ExperimentSpec, number: int, rounds: int) -> bool:
    """In a round that is tested at all; without a server nobody of a cohort answers before the others."""
    return spec.topology != "server" or everyone_is_tested(spec.evaluation, number, rounds)


def _no_longer_last(record: RoundRecord, spec: ExperimentSpec, rounds: int) -> RoundRecord:
    hidden = _last_traces(spec)
    record = record.model_copy(update={"traces": {k: v for k, v in record.traces.items() if k not in hidden}})
    if not is_due(spec.evaluation, record.round, rounds):
        return _tested_on(record, frozenset(), None, 0)
    cohort = frozenset(str(client) for client in record.cohort)
    if _tests_everyone(spec, record.round, rounds) or record.client_accuracy.keys() <= cohort:
        return record
    who = (
        f"round {record.round} was tested on all clients, as the last one is under protocol {spec.evaluation.protocol}"
    )
    if record.eval_flops:
        raise Untellable(f"{who}, and it is not known what of the test's cost belongs to the cohort")
    if record.validation_accuracy is not None:
        raise Untellable(f"{who}, and it is not known what the cohort alone reached on its validation samples")
    if spec.algorithm.may_not_answer():
        raise Untellable(f"{who}, and it is not known who of the cohort had an answer before the round was over")
    accuracies = [accuracy for client, accuracy in record.client_accuracy.items() if client in cohort]
    # in ascending order of the clients, as engine.runtime.evaluation.round_accuracy adds them up
    return _tested_on(record, cohort, sum(accuracies) / len(accuracies) if accuracies else None, 0)


def _tested_on(record: RoundRecord, clients: frozenset[str], accuracy: float | None, eval_flops: int) -> RoundRecord:
    """With the tests of these clients alone."""
    traces = {}
    for name, values in record.traces.items():
        if name.startswith("accuracy_") and isinstance(values, dict):  # a further inference path, of those tested
            values = {client: value for client, value in values.items() if client in clients}
        if values:
            traces[name] = values
    return record.model_copy(
        update={
            "accuracy": accuracy,
            "validation_accuracy": None,  # told of all who were tested, or not at all
            "client_accuracy": {k: v for k, v in record.client_accuracy.items() if k in clients},
            "eval_flops": eval_flops,
            "traces": traces,
            "dropped": [note for note in record.dropped if note.part != "test" or str(note.client) in clients],
        }
    )
