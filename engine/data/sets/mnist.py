"""MNIST: 70,000 handwritten digits (LeCun et al.)."""

from engine.data.card import DataCard
from engine.data.formats.idx import idx_layout, idx_remotes
from engine.data.normalisation import CIFAR100

CARD = DataCard(
    name="mnist",
    title="MNIST",
    shape=(1, 28, 28),
    classes=10,
    images=70_000,
    normalisation=CIFAR100,  # the authors' code gives grey images the first channel of these
    layouts=(idx_layout("IDX files", ("MNIST/raw", "mnist/raw", "MNIST"), tuple("0123456789")),),
    remotes=idx_remotes(
        ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist"),
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    content_sum="ce9872250c0067044ac3d7ef44de3c2969db066251c76092937ac6e59b9cfcd7",
)
