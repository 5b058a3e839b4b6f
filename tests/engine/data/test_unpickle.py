import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from engine.data.errors import DataDamaged
from engine.data.unpickle import unpickle
from tests.engine.data.layouts import attack, python2_pickle

HERE = Path("file.pickle")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_and_arrays_come_back_from_every_protocol(protocol: int) -> None:
    content = {
        "x": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "big endian": np.arange(3, dtype=">i4"),
        "flags": np.array([True, False]),
        "number": np.int64(7),
        "words": ["a", b"b", 3, 1.5, None, True],
    }
    found = unpickle(pickle.dumps(content, protocol=protocol), HERE)
    assert found["words"] == content["words"]
    assert found["number"] == 7
    for key in ("x", "fortran", "big endian", "flags"):
        np.testing.assert_array_equal(found[key], content[key])


def test_a_file_written_by_python_2_comes_back_with_text_keys() -> None:
    data = np.arange(250, 262, dtype=np.uint8).reshape(2, 6)
    found = unpickle(python2_pickle({b"data": data, b"labels": [3, 5]}), HERE)
    np.testing.assert_array_equal(found["data"], data)
    assert found["labels"] == [3, 5]


def test_code_in_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    with pytest.raises(DataDamaged, match=r"asks for .*"):
        unpickle(attack(victim), HERE)
    assert not victim.exists()


@pytest.mark.parametrize(
    "name", ["builtins\neval", "os\nsystem", "numpy\nload", "numpy.core.multiarray\nset_numeric_ops"]
)
def test_names_outside_the_short_list_are_refused(name: str) -> None:
    with pytest.raises(DataDamaged, match="asks for"):
        unpickle(f"c{name}\n.".encode(), HERE)


def test_other_classes_of_the_standard_library_are_refused() -> None:
    with pytest.raises(DataDamaged, match=r"asks for collections\.OrderedDict"):
        unpickle(pickle.dumps(OrderedDict(a=1)), HERE)


def test_the_builders_themselves_cannot_be_changed_by_the_file() -> None:
    change = b"cnumpy.core.multiarray\n_reconstruct\n}(U\x0c__defaults__K\x01ub."
    with pytest.raises(DataDamaged, match="changes the state of a function"):
        unpickle(change, HERE)


def test_an_array_whose_bytes_do_not_fill_its_shape_is_refused() -> None:
    whole = python2_pickle({b"data": np.zeros(4, np.uint8)})
    with pytest.raises(DataDamaged):
        unpickle(whole.replace(b"(J\x04\x00\x00\x00t", b"(J\x40\x00\x00\x00t"), HERE)


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(DataDamaged, match="nested"):
        unpickle(pickle.dumps(loop), HERE)


def test_a_cut_off_pickle_is_refused_with_its_name() -> None:
    whole = pickle.dumps({"data": [1, 2, 3]})
    with pytest.raises(DataDamaged, match=r"file\.pickle is not a whole pickle"):
        unpickle(whole[:-4], HERE)
