"""CIFAR-10: 60,000 small photographs of 10 classes (Krizhevsky)."""

from engine.data.card import DataCard
from engine.data.download import Remote
from engine.data.formats.cifar import PUBLISHER, CifarForm, cifar_layouts
from engine.data.normalisation import IMAGENET

FORM = CifarForm(
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    names="batches.meta",
    label_bytes=1,
    keys=("labels",),
    name_keys=("label_names",),
    classes=(10,),
)

CARD = DataCard(
    name="cifar10",
    title="CIFAR-10",
    shape=(3, 32, 32),
    classes=10,
    images=60_000,
    normalisation=IMAGENET,
    layouts=cifar_layouts(FORM, "cifar-10-batches-bin", "cifar-10-batches-py", ("batches.meta.txt",)),
    remotes=(
        Remote(
            "cifar-10-python.tar.gz",
            (f"{PUBLISHER}/cifar-10-python.tar.gz",),
            "md5:c58f30108f718f92721af3b95e74349a",
            packed=True,
        ),
    ),
    content_sum="c62c88aebf649e5dd89e06e8b14ae89305ac9697112bb92b59f9386bfa6736ff",
)
