"""The artifacts of an experiment on its page: asked for, drawn, filtered, exported."""

import pytest

from tests.browser.conftest import OpenPage
from tests.browser.product import Product, small

pytestmark = pytest.mark.browser


def test_artifacts_are_asked_for_drawn_and_exported(product: Product, open_page: OpenPage) -> None:
    experiment = product.submit(small("with pictures", algorithm={"name": "pfedes"}, rounds=2))
    product.wait(experiment)
    page = open_page(f"/experiments/{experiment}")
    section = page.locator("#artifacts")
    section.locator("img").wait_for()
    page.wait_for_function("() => document.querySelector('#artifacts img').naturalWidth > 0")
    section.get_by_role("button", name="Compute t-SNE").click()
    points = section.locator(".plane-stage path")
    points.first.wait_for()
    rows = {row["kind"]: row for row in product.get(f"/api/experiments/{experiment}/artifacts")["artifacts"]}
    plane = product.client.get(f"/api/artifacts/{rows['features']['id']}/file").json()
    assert points.count() == len(plane["points"])
    assert section.get_by_role("button", name="Compute t-SNE").is_hidden()
    section.get_by_title("Show or hide class 0").click()
    assert points.count() == sum(label != 0 for label in plane["label"])
    first = plane["client"][0]
    section.locator(f'[title^="Client {first}:"]').click()
    shown = zip(plane["label"], plane["client"], strict=True)
    assert points.count() == sum(label != 0 and client != first for label, client in shown)
    for name, opening in (("CSV", b"x,y,label,client"), ("SVG", b"<svg "), ("PNG", b"\x89PNG")):
        with page.expect_download() as waiting:
            section.get_by_role("button", name=name, exact=True).click()
        assert waiting.value.path().read_bytes().startswith(opening)
    with page.expect_download() as waiting:
        section.get_by_role("link", name=rows["features"]["name"]).click()
    assert waiting.value.path().stat().st_size == rows["features"]["bytes"]
