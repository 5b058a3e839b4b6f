"""The contract of a method: what it keeps, what travels, how a client learns and how the server combines.

A whole method, one file; its hooks stand in the order in which they are called:

    '''MeanHead: clients share the mean of their heads, and learn everything else alone.

    Nobody: A Method to Read. 2026.

        client   h_k ← φ;  E epochs of  min CE(h_k(f_k(x)), y)
        server   φ = mean of h_k
        use      h_k(f_k(x)),  or with the newest φ
    '''

    from typing import Literal

    from engine.kit.contract import Algorithm, AlgorithmParams, Method, ServerState
    from engine.kit.tensors import copy_tensors, load_tensors, weighted_mean
    from engine.kit.training import fit_classifier

    class MeanHeadParams(AlgorithmParams):
        name: Literal["mean-head"] = "mean-head"

    class MeanHead(Algorithm[MeanHeadParams]):
        Params = MeanHeadParams
        method = Method.of(__doc__, shares="the head", family="split")

        def group(self, client):  # a server state of its own for every width of features
            return str(client.model.feature_dim)

        def private(self, client):  # what stays with the client between two rounds
            return {"model.body": client.model.body}

        def init_server(self, examples):
            return ServerState({self.group(client): copy_tensors(client.model.head) for client in examples})

        def download(self, server, client):  # exactly what travels down
            return server.groups[self.group(client)]

        def local_update(self, client, received):  # and exactly what travels up
            load_tensors(client.model.head, received)
            fit_classifier(client)
            return copy_tensors(client.model.head)

        def aggregate(self, server, uploads, round):
            groups = dict(server.groups)
            for group in {upload.group for upload in uploads}:
                heads = [upload.payload for upload in uploads if upload.group == group]
                groups[group] = weighted_mean(heads, [1 / len(heads)] * len(heads))
            return server.next(groups)

        def prepare(self, client, received):  # before it answers: features, then the head on them
            if received is not None:
                load_tensors(client.model.head, received)

engine.kit.sharing has the common ways to share, with which FedAvg and FedPer are ten lines long.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from engine.data.client_dataset import ClientDataset
from engine.kit import rng
from engine.kit.flops import Meter
from engine.kit.headers import Source, parse
from engine.kit.tensors import Tensors, live_tensors, load_tensors
from engine.models import Shape, SplitModel, build
from engine.runtime.device import Compute
from engine.spec.frozen import Frozen
from engine.spec.training import TrainingSpec

if TYPE_CHECKING:
    from engine.kit.peer_to_peer import Peers

Payload = Mapping[str, Tensor]
"""Exactly what travels in one message. Float tensors are counted; integer tensors are side information."""

Predictor = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) to scores (B, L); the largest score is the answer."""


M = TypeVar("M", bound=nn.Module)


Presets = Mapping[str, Mapping[str, Any]]
"""Values of parameters by preset: {"B": {"weight": 10}}."""


class AlgorithmParams(Frozen):
    """A method's own parameters: `name` gets its literal, every field a default, bounds and a description."""

    preset_values: ClassVar[Presets] = {}
    """Defaults that differ by preset."""

    name: str

    def depends_on_rounds(self, topology: str) -> str | None:
        """Why a round's work depends on how many rounds T there will be; None: a shorter run begins a longer one."""
        return None

    def may_not_answer(self) -> bool:
        """Whether `predictor` can be None, so that a client may first be tested later than others."""
        return False


@dataclass(frozen=True)
class Trace:
    """A number, or a list of numbers, that a method leaves behind for each client of a round."""

    name: str
    title: str
    """Of its chart."""
    unit: str = ""
    """What the numbers count, such as FLOPs; empty: nothing. An `accuracy` is a share of right answers."""
    last_round_only: bool = False
    """Only the last round leaves it. Nothing else may differ there: see engine.runtime.horizon."""


Family = Literal["proposed", "distillation", "split", "mutual", "homogeneous", "standalone"]


@dataclass(frozen=True)
class Method:
    """What people should know about a method before they run it."""

    title: str
    source: Source
    shares: str
    family: Family
    heterogeneous: str = "any models"
    traces: tuple[Trace, ...] = ()

    @classmethod
    def of(
        cls,
        doc: str | None,
        *,
        shares: str,
        family: Family,
        heterogeneous: str = "any models",
        traces: tuple[Trace, ...] = (),
    ) -> "Method":
        """Title, paper, authors, venue, year and link stand once, in the header of the method's file: its `__doc__`."""
        header = parse(doc or "")
        if not header.title:
            raise ValueError("the file of a method must open with a docstring that begins with `Title: what it does.`")
        return cls(header.title, header.source, shares, family, heterogeneous, traces)


class Moment(Enum):
    """When a client of the cohort is tested under protocols A and C."""

    BEFORE_LOCAL_WORK = "before local work"
    AFTER_LOCAL_WORK = "after local work"
    AFTER_AGGREGATION = "after aggregation"


@dataclass(frozen=True)
class Setup:
    """The experiment as a method may see it."""

    seed: int
    clients: int
    rounds: int
    classes: int
    shape: Shape
    feature_dim: int | None
    training: TrainingSpec
    architectures: tuple[str, ...]  # of each client
    num_samples: tuple[int, ...]  # n_k of each client
    topology: str = "server"
    cohort: int = 0  # K, how many clients take part in a round
    pretrained: Mapping[str, Tensors] = field(default_factory=dict)  # by architecture; checked to fit
    interrupted: Callable[[], bool] = field(default=lambda: False, compare=False)  # someone asked the run to stop

    def model(self, architecture: str) -> SplitModel:
        """A network with the initial weights that every client of that architecture starts from."""
        with rng.seeded_init(self.seed, architecture, "model"):
            model = build(architecture, self.shape, self.classes, self.feature_dim)
        start = self.pretrained.get(architecture, {})
        load_tensors({name: tensor for name, tensor in live_tensors(model).items() if name in start}, start)
        return model

    def make(self, role: str, module: Callable[[], M]) -> M:
        """A module whose initial weights depend on the experiment's seed and its role alone: equal for all clients."""
        with rng.seeded_init(self.seed, "part", role):
            return module()

    def participants(self, round: int) -> list[int]:
        """The cohort S^t, ascending: it depends on the seed and the round alone."""
        order = torch.randperm(self.clients, generator=rng.generator(self.seed, "cohort", round))
        return sorted(order[: self.cohort].tolist())

    def server_draws(self, purpose: str, round: int) -> torch.Generator:
        """The server's own random draws in a round."""
        return rng.generator(self.seed, purpose, round, "server")


Groups = Mapping[str, Mapping[str, Tensor]]
"""A set of tensors for each group of clients; a thing of which there is one for all of them stands under `all`."""


@dataclass(frozen=True)
class ServerState:
    """What the server knows after a round."""

    groups: Groups = field(default_factory=dict)
    shared: Mapping[str, Groups] = field(default_factory=dict)
    """What it holds beside that, such as anchors, variates or generators, by the names in Algorithm.shared_state."""
    round: int = 0
    flops: int = 0  # spent by the server on making this state

    def next(self, groups: Groups, *, flops: int = 0, **shared: Groups) -> "ServerState":
        """The state that follows: with these groups, and what else is named here; the rest stays as it is."""
        return ServerState(groups, {**self.shared, **shared}, self.round, flops)

    def tensors(self) -> Iterator[Tensor]:
        """All of them."""
        for groups in (self.groups, *self.shared.values()):
            for tensors in groups.values():
                yield from tensors.values()


@dataclass(frozen=True)
class Upload:
    """One client's message with what the server knows about its sender."""

    client: int
    num_samples: int
    group: str
    payload: Payload


class Client:
    """One client while it works: its networks, its samples, and a note-pad for what the round costs and shows."""

    def __init__(
        self,
        *,
        id: int,
        round: int,
        setup: Setup,
        model: SplitModel,
        parts: nn.ModuleDict,
        train: ClientDataset,
        test: ClientDataset,
        validation: ClientDataset,
        announced: Payload,
        compute: Compute,
    ) -> None:
        self.id = id
        self.round = round
        self.setup = setup
        self.model = model
        self.parts = parts
        self.train = train
        self.test = test
        self.validation = validation  # may be empty
        self.announced = announced  # what the server said once, after the opening
        self.known: Payload = {}  # what it is taken to hold already; see Algorithm.known
        self.compute = compute
        self.trainer: Callable[[Client], float] | None = None  # instead of the next fit_classifier(); see stacked.py
        self.meter = Meter()
        self.losses: list[float] = []
        self.traces: dict[str, Any] = {}

    @property
    def architecture(self) -> str:
        return self.model.architecture

    @property
    def lr_factor(self) -> float:
        """What the schedule makes of every local learning rate in this round."""
        return self.setup.training.lr_factor(self.round, self.setup.rounds)

    def part(self, name: str, kind: type[M]) -> M:
        """A module that init_client put there, with its own type."""
        module = self.parts[name]
        if not isinstance(module, kind):
            raise TypeError(f"part {name!r} is a {type(module).__name__}, not a {kind.__name__}")
        return module

    def draws(self, purpose: str) -> torch.Generator:
        """This client's own random draws in this round, apart from its batches."""
        return rng.generator(self.setup.seed, purpose, self.round, self.id)

    def lasting_draws(self, purpose: str) -> torch.Generator:
        """This client's own random draws that are the same in every round, such as a part of its data set aside."""
        return rng.generator(self.setup.seed, purpose, self.id)

    def trace(self, name: str, value: float | list[float]) -> None:
        """Keep a number (or a few) of this client and round for the charts; Method.traces declares the name."""
        self.traces[name] = value


P = TypeVar("P", bound=AlgorithmParams)


class Algorithm(ABC, Generic[P]):
    """A method. It holds no state: what persists lies in the client's modules and in the server's tensors."""

    Params: ClassVar[type[AlgorithmParams]]
    method: ClassVar[Method]
    tested: ClassVar[Moment] = Moment.AFTER_LOCAL_WORK
    topologies: ClassVar[frozenset[str]] = frozenset({"server"})
    shared_state: ClassVar[frozenset[str]] = frozenset()
    """The names in ServerState.shared."""

    def __init__(self, params: P, setup: Setup) -> None:
        self.params = params
        self.setup = setup

    def why_not(self) -> str | None:
        """The reason why this method cannot run in this setup, or None."""
        return None

    def peers(self) -> "Peers | None":
        """Who talks to whom in a topology without a server; None: everybody talks to the server."""
        return None

    def group(self, client: Client) -> str:
        """Clients of one group share one server state; it may differ from round to round."""
        return "all"

    def init_client(self, client: Client) -> None:
        """Put further modules into client.parts. Called once per architecture: it may not depend on the client's id."""
        return

    def private(self, client: Client) -> Mapping[str, nn.Module]:
        """What the client keeps between its rounds. Leave out what every download overwrites."""
        return {"model": client.model, "parts": client.parts}

    def init_server(self, examples: Sequence[Client]) -> ServerState:
        """Round 0, from one fresh client of every architecture, the lowest id of each."""
        return ServerState()

    def opens(self) -> bool:
        """Whether all clients do something once before round 1; it is booked as round 0."""
        return False

    def opening_download(self, server: ServerState, client: Client) -> Payload:
        """What travels down before the opening."""
        return self.download(server, client)

    def opening_update(self, client: Client, received: Payload) -> Payload:
        """A client's part of the opening. Whatever it changes in the client is forgotten; only the message counts."""
        raise NotImplementedError(f"{type(self).__name__} has no opening")

    def close_opening(self, server: ServerState, uploads: Sequence[Upload]) -> ServerState:
        """The server's state after the opening, from at least one upload; not called if none can be used."""
        return server

    def announce(self, server: ServerState, client: Client) -> Payload:
        """What every client is told once after the opening, and knows from then on as client.announced."""
        return {}

    def known(self, server: ServerState, client: Client) -> Payload:
        """What a client is taken to hold without a message, such as the base of an update it is sent: client.known."""
        return {}

    def download(self, server: ServerState, client: Client) -> Payload:
        """Exactly what travels down."""
        return {}

    @abstractmethod
    def local_update(self, client: Client, received: Payload) -> Payload:
        """Train; touch only this client; return exactly what travels up, sharing no memory with the client."""

    def aggregate(self, server: ServerState, uploads: Sequence[Upload], round: int) -> ServerState:
        """A new state from the uploads, which come in ascending client id; the old one stays as it is.

        There is at least one upload, and all of them are finite.
        """
        return server

    def idle(self, server: ServerState, round: int) -> ServerState:
        """The state after a round of which nothing can be used: the server keeps what it has."""
        return replace(server, flops=0)

    def prepare(self, client: Client, received: Payload | None) -> None:
        """Make the client ready to answer; called before the hooks below, which change nothing.

        `received` is the newest download, or None right after the client's own local work. What this changes in the
        client is forgotten after the test.
        """
        return

    def features(self, client: Client) -> Predictor:
        """Images to the vectors (B, d) that the client answers from."""
        return client.model.body

    def predictor(self, client: Client) -> Predictor | None:
        """The inference path, or None while there is none yet: by default the client's head on its features."""
        f, h = self.features(client), client.model.head
        return client.model if f is client.model.body else lambda x: h(f(x))

    def readouts(self, client: Client) -> Mapping[str, Predictor]:
        """Further inference paths, tested right after the predictor. The accuracy of x is the trace `accuracy_x`."""
        return {}

    def pictures(self, client: Client) -> Mapping[str, Predictor]:
        """Images to images of the same size that the method makes of them, by name; none by default."""
        return {}


__all__ = [
    "Algorithm",
    "AlgorithmParams",
    "Client",
    "ClientDataset",
    "Groups",
    "Method",
    "Moment",
    "Payload",
    "Predictor",
    "Presets",
    "ServerState",
    "Setup",
    "Tensors",
    "Trace",
    "Upload",
]
