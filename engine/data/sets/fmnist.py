"""Fashion-MNIST: 70,000 pieces of clothing in the form of MNIST (Xiao et al.)."""

from pathlib import Path

from engine.data.card import DataCard
from engine.data.formats.idx import idx_layout, idx_remotes
from engine.data.normalisation import CIFAR100

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip

CARD = DataCard(
    name="fmnist",
    title="Fashion-MNIST",
    shape=(1, 28, 28),
    classes=10,
    images=70_000,
    normalisation=CIFAR100,  # as for MNIST
    layouts=(
        idx_layout(
            "IDX files",
            ("FashionMNIST/raw", "fashion-mnist", "FashionMNIST", "fashion_mnist", "dataset-fashion-mnist"),
            CLASSES,
        ),
    ),
    # the Debian package dataset-fashion-mnist
    system_folders=(Path("/usr/share/datasets/fashion-mnist"), Path("/usr/share/dataset-fashion-mnist")),
    remotes=idx_remotes(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    content_sum="d572008488220983a52dc4dd2a0866a78f5424ec3496d6c70ea34ddb6832d07d",
)
