"""The only door to torchvision: `from engine.vision import torchvision, models`.

torchvision describes two of its compiled operators, nms and qnms, to torch while it is imported. Beside a torch it was
not compiled for (its CUDA build beside a CPU torch) its library does not load, the two operators do not exist, and the
import fails. The networks need neither of them, so here they are declared, without any code behind them.
"""

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: torch.library.Library | None = None


def _declare_missing_operators() -> torch.library.Library:
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)  # type: ignore[no-untyped-call]
    return library


# A working library defines the operators itself and may do so only once: so it is tried first, and asked for nothing.
try:
    import torchvision
except RuntimeError as error:
    if "torchvision::" not in str(error):
        raise
    # kept for the life of the process: the operators vanish together with this object
    _declared = _declare_missing_operators()
    import torchvision

models = torchvision.models

__all__ = ["models", "torchvision"]
