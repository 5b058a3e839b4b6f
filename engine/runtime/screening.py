"""Numbers that are not finite are kept from spreading: which parts of a message count in what is made of it.

A message counts as a whole or not at all: half a network cannot be averaged. In a table of classes every row stands
for itself, so one can be left out alone.
"""

from engine.kit.contract import Payload
from engine.kit.prototypes import is_table
from engine.kit.tensors import all_finite
from engine.records import Dropped

NOT_FINITE = "not all of its numbers are finite"


def screened(client: int, payload: Payload) -> tuple[Payload | None, tuple[Dropped, ...]]:
    """What of a client's message counts, None if nothing does, and a note on the rest."""
    if all_finite(payload.values()):
        return payload, ()
    if is_table(payload):
        good = payload["means"].isfinite().all(1)
        if good.any():
            bad = [str(label) for label in payload["classes"][~good.to(payload["classes"].device)].tolist()]
            rows = {name: tensor[good.to(tensor.device)] for name, tensor in payload.items()}
            return rows, (Dropped(client=client, part=f"classes {', '.join(bad)}", reason=NOT_FINITE),)
    return None, (Dropped(client=client, part="message", reason=NOT_FINITE),)
