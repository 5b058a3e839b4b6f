"""DomainNet: 586,575 images of 345 classes in six domains (Peng et al.)."""

from engine.data.card import DataCard
from engine.data.download import Remote
from engine.data.formats.domains import domain_layout
from engine.data.normalisation import IMAGENET

DOMAINS = ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")
PUBLISHER = "https://csr.bu.edu/ftp/visda/2019/multi-source"


def _remotes() -> tuple[Remote, ...]:
    """No checksum is published; a zip archive carries one for each of its files."""
    cleaned = {"clipart", "painting"}  # the publisher's version without duplicates
    archives = (
        Remote(f"{d}.zip", (f"{PUBLISHER}/{'groundtruth/' if d in cleaned else ''}{d}.zip",), packed=True)
        for d in DOMAINS
    )
    lists = (Remote(f"{d}_test.txt", (f"{PUBLISHER}/domainnet/txt/{d}_test.txt",)) for d in DOMAINS)
    return (*archives, *lists)


CARD = DataCard(
    name="domainnet",
    title="DomainNet",
    shape=(3, 64, 64),
    classes=345,
    images=586_575,
    normalisation=IMAGENET,
    resized_crops=True,
    layouts=(domain_layout("domain and class folders", ("DomainNet", "domain_net", "DomainNet/rawdata"), DOMAINS),),
    remotes=_remotes(),
)
