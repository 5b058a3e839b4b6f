"""Networks that another experiment trained, as the start of a new one: read from files, found to fit, and named."""

import hashlib
from collections.abc import Callable, Iterator, Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from engine.kit.contract import Setup
from engine.kit.tensors import Tensors
from engine.models import build
from engine.spec.models import PretrainedSpec

Weights = Callable[[str], bytes]
"""The content of a weights file by its sha256; KeyError: there is none."""


class PretrainedError(ValueError):
    """The weights cannot be used for this experiment."""


def network_key(client: int, architecture: str, tensor: str) -> str:
    """The name of a tensor in a weights file."""
    return f"client-{client}/{architecture}/{tensor}"


def read_networks(content: bytes) -> Iterator[tuple[str, Tensors]]:
    """Architecture and tensors of every network in a weights file, in the order of the clients."""
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise PretrainedError(f"not a weights file: {error}") from None
    networks: dict[tuple[int, str], Tensors] = {}
    for key, tensor in tensors.items():
        client, _, rest = key.removeprefix("client-").partition("/")
        architecture, _, name = rest.partition("/")
        if not client.isdecimal() or not name:
            raise PretrainedError(f"not a weights file: it holds {key!r} instead of client-N/architecture/tensor")
        networks.setdefault((int(client), architecture), {})[name] = tensor
    for (_, architecture), network in sorted(networks.items(), key=lambda item: item[0]):
        yield architecture, network


def starting_points(pretrained: PretrainedSpec, setup: Setup, weights: Weights | None) -> Mapping[str, Tensors]:
    """What every architecture of the setup starts from, or the reason why it cannot."""
    if weights is None:
        raise PretrainedError("weights cannot be looked up here: give the files, or submit the spec to a service")
    found: dict[str, Tensors] = {}
    for digest in pretrained.weights:
        for architecture, network in read_networks(_content(digest, weights)):
            if architecture in found:
                raise PretrainedError(
                    f"there are two networks for {architecture}; name files that hold every architecture once"
                )
            found[architecture] = network
    needed = list(dict.fromkeys(setup.architectures))
    missing = [architecture for architecture in needed if architecture not in found]
    if missing:
        raise PretrainedError(f"there are no weights for {', '.join(missing)}; the files hold {', '.join(found)}")
    return {
        architecture: _fitting(setup, architecture, found[architecture], pretrained.part) for architecture in needed
    }


def _content(digest: str, weights: Weights) -> bytes:
    try:
        content = weights(digest)
    except KeyError:
        raise PretrainedError(
            f"there are no weights with sha256 {digest}; ask for the weights of a finished experiment and take theirs"
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise PretrainedError(f"the file that should have sha256 {digest} is damaged")
    return content


def _fitting(setup: Setup, architecture: str, network: Tensors, part: str) -> Tensors:
    with torch.device("meta"):
        model = build(architecture, setup.shape, setup.classes, setup.feature_dim)
    wanted = {
        name: tensor for name, tensor in model.state_dict().items() if part == "model" or name.startswith("body.")
    }
    for name, tensor in wanted.items():
        if name not in network:
            raise PretrainedError(f"the weights of {architecture} have no {name}")
        if network[name].shape != tensor.shape:
            raise PretrainedError(
                f"{name} of {architecture} has shape {list(tensor.shape)} here, but {list(network[name].shape)} in the "
                "weights: images, classes and feature width must be those they were trained with"
                + ("; part: body leaves the head out" if name.startswith("head.") else "")
            )
    return {name: network[name] for name in wanted}
