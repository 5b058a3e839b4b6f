"""Accessibility of a page, measured by axe-core."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
SCRIPT = f"async () => {{ const module = undefined; {AXE.read_text(encoding='utf-8')}; }}"
GRAVE = {"serious", "critical"}


def violations(page: "Page") -> list[str]:
    """What is seriously wrong on the page as it is now, a line each."""
    # evaluated, not added as a script element, which the pages' security policy refuses
    page.evaluate(SCRIPT)
    # the size of targets belongs to WCAG 2.2, which axe leaves out unless it is asked
    options = "{resultTypes: ['violations'], rules: {'target-size': {enabled: true}}}"
    answer: dict[str, Any] = page.evaluate(f"axe.run(document, {options})")
    return [
        f"{item['impact']}: {item['id']}: {item['help']}: {node['target']}: {node['failureSummary']}"
        for item in answer["violations"]
        if item["impact"] in GRAVE
        for node in item["nodes"]
    ]
