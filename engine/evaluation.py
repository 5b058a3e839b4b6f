"""Who is tested and when, and how single tests become the accuracy of a round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.algorithm import Algorithm, AlgorithmParams, Client, Moment, Payload
from engine.cost import Meter
from engine.spec import EvaluationSpec
from engine.training import Diverged, Interrupted


@dataclass(frozen=True)
class Tested:
    """One client's result on its own test samples."""

    correct: int
    samples: int
    flops: int  # of tuning a copy for the test
    readouts: Mapping[str, float]  # accuracy of further inference paths
    failure: str = ""  # why nothing was answered: what is tuned for the test diverged

    @property
    def accuracy(self) -> float:
        return self.correct / self.samples


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
    results: Sequence[Tested] = list(tests.values())
    if not results:
        return None
    if evaluation.protocol == "B":
        return sum(result.correct for result in results) / sum(result.samples for result in results)
    return sum(result.accuracy for result in results) / len(results)


def test_client(algorithm: Algorithm[AlgorithmParams], client: Client, received: Payload | None) -> Tested | None:
    """Exact accuracy of the method's inference path on the client's test samples.

    An answer that is not a number is wrong, and so are all answers of a copy that diverged while it was tuned.
    """
    training_meter, client.meter = client.meter, Meter()
    try:
        predictor = algorithm.predictor(client, received)
        if predictor is None:
            return None
        paths = {"": predictor, **algorithm.readouts(client, received)}
        paths = {name: client.compute.inference(path) for name, path in paths.items()}
        for module in (client.model, client.parts):
            module.eval()
        correct = dict.fromkeys(paths, 0)
        with torch.no_grad():
            for images, labels in client.test.in_order():
                if client.setup.interrupted():
                    raise Interrupted
                for name, path in paths.items():
                    scores = path(images)
                    right = (scores.argmax(1) == labels) & ~scores.isnan().any(1)
                    correct[name] += int(right.sum())
        main, samples = correct.pop(""), len(client.test)
        readouts = {name: number / samples for name, number in correct.items()}
        return Tested(main, samples, client.meter.flops, readouts)
    except Diverged as error:
        if client.setup.training.divergence_tolerance == 0:
            raise
        return Tested(0, len(client.test), client.meter.flops, {}, error.reason)
    finally:
        client.meter = training_meter
