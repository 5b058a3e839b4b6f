"""What travels in most methods: a module that the server averages, for all clients or per architecture."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeVar

from pydantic import Field
from torch import nn

from engine.kit.contract import (
    Algorithm,
    AlgorithmParams,
    Client,
    P,
    Payload,
    Predictor,
    Presets,
    ServerState,
    Setup,
    Upload,
)
from engine.kit.prototypes import ClassTable, all_rows, keep_missing, mean_rows
from engine.kit.tensors import copy_tensors, load_tensors, shares, weighted_mean
from engine.models import ARCHITECTURES, SplitModel, build, check


class AveragesModule(Algorithm[P]):
    """One module of every client is shared: θ = Σ w_k θ_k over the clients of a group that took part."""

    server_does_more: ClassVar[bool] = False
    """Whether the server makes something else of what it is sent than this mean."""

    @abstractmethod
    def shared(self, client: Client) -> nn.Module:
        """The module that travels."""

    def init_server(self, examples: Sequence[Client]) -> ServerState:
        groups: dict[str, Payload] = {}
        for client in examples:
            groups.setdefault(self.group(client), copy_tensors(self.shared(client)))
        return ServerState(groups)

    def download(self, server: ServerState, client: Client) -> Payload:
        return server.groups[self.group(client)]

    def receive(self, client: Client, received: Payload) -> None:
        load_tensors(self.shared(client), received)

    def upload(self, client: Client) -> Payload:
        return copy_tensors(self.shared(client))

    def prepare(self, client: Client, received: Payload | None) -> None:
        """A client answers with the module as its own work left it, or with the newest one of the server."""
        if received is not None:
            self.receive(client, received)

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        """w_k = n_k / Σ n_j over those who returned."""
        return shares([upload.num_samples for upload in uploads])

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        groups = dict(server.groups)
        for group in groups:
            members = [upload for upload in uploads if upload.group == group]
            if members:  # a group without participants keeps its state
                groups[group] = weighted_mean([member.payload for member in members], self.weights(members))
        return server.next(groups)


class AveragesPerArchitecture(AveragesModule[P]):
    """Clients of one architecture form a group with a state of its own."""

    def group(self, client: Client) -> str:
        return client.architecture


class AveragesModels(AveragesPerArchitecture[P]):
    """Whole models travel; a client keeps only what a method puts into its parts."""

    def shared(self, client: Client) -> nn.Module:
        return client.model

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        return {"parts": client.parts}


class AveragesBodies(AveragesPerArchitecture[P]):
    """Bodies travel; the head stays at home."""

    def shared(self, client: Client) -> nn.Module:
        return client.model.body

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        return {"model.head": client.model.head}


class SharesHead(AveragesModule[P]):
    """The last linear layer is shared by the clients whose heads have one shape; the body stays at home."""

    def why_not(self) -> str | None:
        deep = [name for name in dict.fromkeys(self.setup.architectures) if ARCHITECTURES[name].head is not nn.Linear]
        if deep:
            return (
                f"{self.method.title} shares one linear head, but the head of {', '.join(deep)} has more layers: use a "
                "family whose heads are linear"
            )
        return None

    def group(self, client: Client) -> str:
        return f"{client.model.feature_dim}x{self.setup.classes}"

    def shared(self, client: Client) -> nn.Module:
        return client.model.head

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        return {"model.body": client.model.body}


SmallModel = Literal["cnn-1", "cnn-2", "cnn-3", "cnn-4", "cnn-5", "fedavgcnn", "compfl-cnn"]
"""What a shared network beside every private one may be."""


def why_no_small_model(title: str, name: SmallModel, setup: Setup, width: int | None) -> str | None:
    """The reason why the shared small network of a method cannot be built for these images, or None."""
    try:
        check(name, setup.shape, setup.classes, width)
    except ValueError as error:
        return f"the small model of {title} does not fit: {error}"
    return None


class SmallModelParams(AlgorithmParams):
    """What methods with a shared small model beside every private one have in common."""

    preset_values: ClassVar[Presets] = {"B": {"small_model": "fedavgcnn"}, "C": {"small_model": "compfl-cnn"}}

    small_model: SmallModel = Field("cnn-5", description="Architecture of the shared small model G")
    weighting: Literal["samples", "uniform"] = Field(
        "samples", description="Weight w_k of a client in the average: its share of the samples, or the same for all"
    )


S = TypeVar("S", bound=SmallModelParams)


class SharesSmallModel(AveragesModule[S]):
    """A small model G, body and head, is averaged over all clients; the private models stay at home."""

    def small_width(self) -> int | None:
        """Feature width of G; None: that of its architecture."""
        return None

    def why_not(self) -> str | None:
        return why_no_small_model(self.method.title, self.params.small_model, self.setup, self.small_width())

    def init_client(self, client: Client) -> None:
        name, setup = self.params.small_model, self.setup
        client.parts["small"] = setup.make("small", lambda: build(name, setup.shape, setup.classes, self.small_width()))

    def shared(self, client: Client) -> SplitModel:
        return client.part("small", SplitModel)

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        kept = {f"parts.{name}": part for name, part in client.parts.items() if name != "small"}
        return {"model": client.model, **kept}

    def weights(self, uploads: Sequence[Upload]) -> list[float]:
        return shares([1] * len(uploads)) if self.params.weighting == "uniform" else super().weights(uploads)


class SharesClassTable(Algorithm[P]):
    """Every client sends one vector for each of its classes; the server's table holds the mean of a class's senders."""

    @abstractmethod
    def width(self, client: Client) -> int:
        """Length of a vector."""

    def init_client(self, client: Client) -> None:
        client.parts["table"] = ClassTable(self.setup.classes, self.width(client))

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        return {"model": client.model}

    def init_server(self, examples: Sequence[Client]) -> ServerState:
        return ServerState({"all": {}})

    def download(self, server: ServerState, client: Client) -> Payload:
        return server.groups["all"]

    def receive(self, client: Client, received: Payload) -> ClassTable:
        table = client.part("table", ClassTable)
        table.load(received)
        return table

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        return server.next({"all": keep_missing(server.groups["all"], mean_rows(all_rows(uploads)))})


class PrototypeParams(AlgorithmParams):
    """What methods that pull features to global prototypes have in common."""

    preset_values: ClassVar[Presets] = {"B": {"readout": "proto"}}

    weight: float = Field(
        10.0, ge=0, le=1000, description="λ: weight of the distance to the prototypes; 0 is Standalone"
    )
    readout: Literal["head", "proto"] = Field(
        "head", description="Answer with the head h_k(f_k(x)), or with the class of the nearest global prototype"
    )

    def may_not_answer(self) -> bool:
        return self.readout == "proto"


Q = TypeVar("Q", bound=PrototypeParams)


class SharesPrototypes(SharesClassTable[Q]):
    """The vector of a class is its mean feature, so all clients need features of one width."""

    def why_not(self) -> str | None:
        if self.setup.feature_dim is None:
            return (
                f"{self.method.title} compares features of different clients and needs one width: set "
                "models.feature_dim or use another family"
            )
        return None

    def width(self, client: Client) -> int:
        return client.model.feature_dim

    def candidates(self, client: Client) -> list[int]:
        """The classes among which the nearest prototype is looked for."""
        return list(range(self.setup.classes))

    def prepare(self, client: Client, received: Payload | None) -> None:
        if received is not None:
            self.receive(client, received)

    def predictor(self, client: Client) -> Predictor | None:
        if self.params.readout == "head":
            return client.model
        return client.part("table", ClassTable).nearest(client.model.body, self.candidates(client))
