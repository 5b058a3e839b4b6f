"""A method is one file, wherever it lies: those of the documentation are run from a folder outside the tree."""

import json
import os
import re
import subprocess
import sys
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent

import pytest

from engine.kit import contract
from engine.kit.elsewhere import MethodsUnusable, methods_of
from tests.source import ROOT

ASK_THE_SERVICE = """
import json, sys
from pathlib import Path
from fastapi.testclient import TestClient
from app.comparison.palette import method_style
from app.config import Settings
from app.main import create_app
from engine.methods import REGISTRY
from engine.testing import SMALL, records_of, small_spec

spec = {**SMALL, "algorithm": {"name": "fedavgm", "beta": 0.5}}
app = create_app(Settings(home=Path(sys.argv[1]), starter=False))
with TestClient(app, base_url="http://127.0.0.1") as client:
    listed = {entry["id"]: entry for entry in client.get("/api/catalog").json()["algorithms"]}
    posted = client.post("/api/experiments", json=spec).json()
    wrong = {**spec, "algorithm": {"name": "fedavgm", "beta": 1}}
    print(json.dumps({
        "methods": list(REGISTRY)[-2:],
        "entry": listed["fedavgm"],
        "list": client.get("/methods").text,
        "page": client.get("/methods/fedavgm").text,
        "experiment": client.get(f"/experiments/{posted['id']}").status_code,
        "refused": client.post("/api/experiments", json=wrong).text,
        "price": client.post("/api/estimate", json=spec).json(),
        "colour": method_style("fedavgm").colour,
        "traces": [sorted(record.traces) for record in records_of(small_spec("fedavgm"))],
    }))
"""


def documented() -> str:
    """FedAvgM of docs/methods.md."""
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return next(block for block in blocks if "class FedAvgM(" in block)


def toy() -> str:
    """The method in the docstring of the contract."""
    text = cleandoc(contract.__doc__ or "")
    lines = [line for line in text.splitlines() if not line or line.startswith("    ")]
    return dedent("\n".join(lines)).strip() + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    methods = tmp_path / "methods"
    methods.mkdir()
    (methods / "fedavgm.py").write_text(documented(), encoding="utf-8")
    (methods / "mean_head.py").write_text(toy(), encoding="utf-8")
    (methods / "_notes.py").write_text("raise ValueError", encoding="utf-8")
    return methods


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FEDARENA_METHODS": str(folder), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=folder.parent, capture_output=True, text=True, check=False
    )


def contract_tests(folder: Path, *methods: str) -> subprocess.CompletedProcess[str]:
    """What an author runs who wrote a test file beside the folder."""
    (folder.parent / "test_mine.py").write_text(
        f"from engine.testing import MethodContract\n\n\nclass TestMine(MethodContract):\n    methods = {methods}\n"
    )
    return python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.", "test_mine.py")


def test_the_toy_is_short_enough_to_be_read_at_once() -> None:
    code = toy().split("class MeanHead(")[1]
    assert len([line for line in code.splitlines() if line.strip()]) <= 26


def test_both_pass_the_tests_that_are_shipped(folder: Path) -> None:
    ended = contract_tests(folder, "fedavgm", "mean-head")
    assert ended.returncode == 0, ended.stdout
    assert re.search(r"\b3\d passed", ended.stdout), ended.stdout


CARELESS = """'''Careless: what every published code has done once.

    client   min CE(F(x; w_k), y)
    use      F(x; w)
'''
from typing import Literal
from engine.kit.contract import AlgorithmParams, Method
from engine.kit.sharing import AveragesModels
from engine.kit.tensors import live_tensors
from engine.kit.training import fit_classifier

class CarelessParams(AlgorithmParams):
    name: Literal["careless"] = "careless"
    rate: float = 1.0

class Careless(AveragesModels[CarelessParams]):
    Params = CarelessParams
    method = Method.of(__doc__, shares="the model", family="homogeneous")

    def local_update(self, client, received):
        self.receive(client, received)
        fit_classifier(client)
        client.trace("surprise", 1.0)
        return live_tensors(client.model)

    def aggregate(self, server, uploads, round):
        for name, tensor in uploads[0].payload.items():
            server.groups[uploads[0].group][name].copy_(tensor)
        return server
"""


def test_the_shipped_tests_catch_what_they_are_for(folder: Path) -> None:
    (folder / "careless.py").write_text(CARELESS)
    ended = contract_tests(folder, "careless")
    failed = set(re.findall(r"^FAILED test_mine.py::TestMine::test_(\w+)", ended.stdout, re.MULTILINE))
    assert failed >= {
        "every_parameter_has_a_default_and_a_description",
        "all_that_it_traces_is_declared",
        "an_upload_shares_no_memory_with_its_client_or_the_server",
        "an_upload_stays_as_it_was_while_the_next_client_works_on_the_same_networks",
        "aggregation_makes_a_new_state_and_leaves_the_old_one_alone",
        "with_everyone_there_and_equal_sizes_the_average_is_uniform_unless_its_server_does_more",
    }, ended.stdout
    assert "test_it_finishes_and_every_record_is_complete" not in ended.stdout


def test_one_file_is_listed_and_has_a_page_a_colour_a_price_and_a_form(folder: Path) -> None:
    ended = python(folder, "-c", ASK_THE_SERVICE, str(folder.parent / "home"))
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["methods"] == ["fedavgm", "mean-head"]
    assert (found["entry"]["title"], found["entry"]["venue"], found["entry"]["year"]) == ("FedAvgM", "arXiv", 2019)
    assert found["entry"]["authors"] == "Hsu, Qi, Brown"
    assert found["entry"]["parameters"]["properties"]["beta"]["default"] == 0.9
    assert found["entry"]["traces"][0]["title"] == "Distance from the model received"
    assert 'href="/methods/fedavgm"' in found["list"]
    assert "<math>" in found["page"]
    assert "never measured" in found["page"]
    assert found["experiment"] == 200
    assert "algorithm.beta" in found["refused"]
    assert found["price"]["estimate"]["round"]["bytes_up"] == 29_264, "one model for each of three clients"
    assert re.fullmatch(r"#[0-9a-f]{6}", found["colour"])
    assert found["traces"] == [[], *[["distance"]] * 3]


def test_the_command_runs_it_and_says_in_one_line_what_is_wrong_with_a_folder(folder: Path) -> None:
    (folder.parent / "spec.yaml").write_text(
        "algorithm: {name: mean-head}\ndataset: {name: digits}\nmodels: {family: tiny-mlp}\nclients: 4\nrounds: 1\n"
        "partition: {name: iid}\ntraining: {epochs: 1, batch_size: 64, lr: 0.1}\n"
    )
    ran = python(folder, "-m", "app.cli", "run", "spec.yaml")
    assert ran.returncode == 0, ran.stderr
    (folder / "mean_head.py").write_text("import nothing_of_this_name")
    refused = python(folder, "-m", "app.cli", "run", "spec.yaml")
    assert refused.returncode == 2, refused.stderr
    assert "mean_head.py cannot be imported: ModuleNotFoundError" in refused.stderr.replace("\n", " ")
    assert "Traceback" not in refused.stderr


HEADER = '"""X: a method.\n\n    use   F(x)\n"""\nfrom engine.kit.contract import *\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must define one method, a class with `Params` and `method`, but got none"),
        (
            HEADER + "class X(Algorithm):\n    method = 1\n",
            r"X\.Params must be a class of AlgorithmParams, but got None",
        ),
        (HEADER + "class X(Algorithm):\n    Params = AlgorithmParams\n    method = 1\n", "must be Method.of"),
        ("class", "cannot be imported: SyntaxError"),
        (
            HEADER + "class X(Algorithm):\n    Params = AlgorithmParams\n"
            "    method = Method.of(__doc__, shares='nothing', family='standalone')\n",
            "X lacks local_update",
        ),
    ],
)
def test_a_file_that_is_no_method_is_refused_with_the_rule_it_breaks(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "x.py").write_text(text)
    with pytest.raises(MethodsUnusable, match=words):
        methods_of(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MethodsUnusable, match="FEDARENA_METHODS must name a folder of methods, but got"):
        methods_of(tmp_path / "nowhere")


def test_a_method_with_the_id_of_another_is_refused(folder: Path) -> None:
    (folder / "again.py").write_text(documented().replace('"fedavgm"', '"fedavg"'))
    ended = python(folder, "-c", "import engine.methods")
    assert "FEDARENA_METHODS: FedAvgM has the id 'fedavg', but so has FedAvg" in ended.stderr
