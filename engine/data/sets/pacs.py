"""PACS: 9,991 images of 7 classes in four domains (Li et al.)."""

from engine.data.card import DataCard
from engine.data.formats.domains import domain_layout
from engine.data.normalisation import IMAGENET

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")

CARD = DataCard(
    name="pacs",
    title="PACS",
    shape=(3, 64, 64),
    classes=7,
    images=9_991,
    normalisation=IMAGENET,
    layouts=(domain_layout("domain and class folders", ("PACS", "PACS/kfold", "pacs/kfold"), DOMAINS),),
    page="https://sketchx.eecs.qmul.ac.uk/",
)
