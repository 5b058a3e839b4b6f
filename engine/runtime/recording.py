"""The record of a round, from what its clients left behind."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.kit.work import BYTES_PER_SCALAR, ClientResult, Tested
from engine.records import Dropped, RoundRecord
from engine.runtime.evaluation import round_accuracy, validation_accuracy
from engine.spec.evaluation import EvaluationSpec


def round_record(
    number: int,
    results: Sequence[ClientResult],
    tests: Mapping[int, Tested],
    evaluation: EvaluationSpec,
    *,
    server_flops: int,
    seconds: float,
    server_seconds: float,
    of_server: Sequence[Dropped],
) -> RoundRecord:
    """`of_server` says what the server itself could not use."""
    up = sum(result.scalars_up for result in results)
    down = sum(result.scalars_down for result in results)
    losses = [(result.loss, result.upload.num_samples) for result in results if result.loss is not None]
    traces: dict[str, Any] = {}
    for result in results:
        for name, value in result.traces.items():
            traces.setdefault(name, {})[str(result.id)] = value
    for client, tested in tests.items():
        for name, accuracy in tested.readouts.items():
            traces.setdefault(f"accuracy_{name}", {})[str(client)] = accuracy
    return RoundRecord(
        round=number,
        accuracy=round_accuracy(evaluation, tests),
        validation_accuracy=validation_accuracy(evaluation, tests),
        loss=sum(loss * n for loss, n in losses) / sum(n for _, n in losses) if losses else None,
        scalars_up=up,
        scalars_down=down,
        bytes_up=BYTES_PER_SCALAR * up,
        bytes_down=BYTES_PER_SCALAR * down,
        client_flops=sum(result.flops for result in results),
        server_flops=server_flops,
        eval_flops=sum(tested.flops for tested in tests.values()),
        seconds=seconds,
        client_seconds=sum(result.seconds for result in results),
        server_seconds=server_seconds,
        cohort=[result.id for result in results],
        client_accuracy={str(k): tests[k].accuracy for k in sorted(tests)},
        traces=traces,
        dropped=[
            *(note for result in results for note in result.dropped),
            *(
                Dropped(client=client, part="test", reason=tests[client].failure)
                for client in sorted(tests)
                if tests[client].failure
            ),
            *of_server,
        ],
    )
