"""Who is tested and when, and how single tests become the accuracy of a round."""

from collections.abc import Mapping, Sequence

import torch

from engine.kit.contract import Algorithm, AlgorithmParams, Client, ClientDataset, Moment, Payload, Predictor
from engine.kit.flops import Meter
from engine.kit.training import Diverged, Interrupted
from engine.kit.work import Tested
from engine.spec.evaluation import EvaluationSpec


def is_due(evaluation: EvaluationSpec, round: int, rounds: int) -> bool:
    """The last round is always tested."""
    return round % evaluation.every == 0 or round == rounds


def cohort_moment(evaluation: EvaluationSpec, method: Moment) -> Moment | None:
    """When the cohort is tested in a round that is due; None: everyone is tested after aggregation instead (B)."""
    return None if evaluation.protocol == "B" else method


def everyone_is_tested(evaluation: EvaluationSpec, round: int, rounds: int) -> bool:
    """B tests all clients; C adds the idle ones in the last round."""
    return evaluation.protocol == "B" or (evaluation.protocol == "C" and round == rounds)


def round_accuracy(evaluation: EvaluationSpec, tests: Mapping[int, Tested]) -> float | None:
    """A, C: plain mean over the clients tested. B: correct answers over samples."""
    return _average(evaluation, [(result.correct, result.num_samples) for result in tests.values()])


def validation_accuracy(evaluation: EvaluationSpec, tests: Mapping[int, Tested]) -> float | None:
    """As the round's accuracy, over those of the clients tested that have validation samples."""
    results = [(result.validation_correct, result.num_validation_samples) for result in tests.values()]
    return _average(evaluation, [(correct, samples) for correct, samples in results if samples])


def _average(evaluation: EvaluationSpec, results: Sequence[tuple[int, int]]) -> float | None:
    """Of (correct answers, samples) of each client."""
    if not results:
        return None
    if evaluation.protocol == "B":
        return sum(correct for correct, _ in results) / sum(samples for _, samples in results)
    return sum(correct / samples for correct, samples in results) / len(results)


def test_client(algorithm: Algorithm[AlgorithmParams], client: Client, received: Payload | None) -> Tested | None:
    """Exact accuracy of the method's inference path on the client's test samples, and on its validation samples.

    An answer that is not a number is wrong, and so are all answers of a copy that diverged while it was tuned.
    """
    training_meter, client.meter = client.meter, Meter()
    try:
        algorithm.prepare(client, received)
        predictor = algorithm.predictor(client)
        if predictor is None:
            return None
        paths = {"": predictor, **algorithm.readouts(client)}
        paths = {name: client.compute.inference(path) for name, path in paths.items()}
        for module in (client.model, client.parts):
            module.eval()
        correct, samples = _right_answers(client, client.test, paths), len(client.test)
        validated = _right_answers(client, client.validation, {"": paths[""]})
        main = correct.pop("")
        readouts = {name: number / samples for name, number in correct.items()}
        return Tested(
            main,
            samples,
            client.meter.flops,
            readouts,
            validation_correct=validated[""],
            num_validation_samples=len(client.validation),
        )
    except Diverged as error:
        if client.setup.training.divergence_tolerance == 0:
            raise
        return Tested(
            0, len(client.test), client.meter.flops, {}, error.reason, num_validation_samples=len(client.validation)
        )
    finally:
        client.meter = training_meter


def _right_answers(client: Client, samples: ClientDataset, paths: Mapping[str, Predictor]) -> dict[str, int]:
    """How many samples each inference path answers right."""
    correct = dict.fromkeys(paths, 0)
    with torch.no_grad():
        for images, labels in samples.in_order() if len(samples) else ():
            if client.setup.interrupted():
                raise Interrupted
            for name, path in paths.items():
                scores = path(images)
                right = (scores.argmax(1) == labels) & ~scores.isnan().any(1)
                correct[name] += int(right.sum())
    return correct
