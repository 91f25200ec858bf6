"""Tables: their numbers are read, and all of them comes back from an archive."""

import numpy as np
import pytest
import torch

from axial_transformers import data
from axial_transformers.compression import compress_files, decompress_files
from axial_transformers.data.tables import read_table, write_table
from tests.small_models import random_model, small_config

WEATHER = '''time,station,"wind, m/s",temperature
2026-01-01,north,3,-0.5
2026-01-02,"a ""b""",,1.25
2026-01-03,south,7,2.0
2026-01-04,south,12,-0.0
'''


def test_columns_keep_their_names_and_what_is_left_out_is_said(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_text(WEATHER)
    with pytest.warns(UserWarning, match="time, station$") as said:
        table = read_table(path)
    assert str(said[1].message).endswith("left out, 1 row with a gap")
    assert table.columns == (("wind, m/s", "int"), ("temperature", "float"))
    np.testing.assert_array_equal(table.values, [[3, -0.5], [7, 2], [12, 0]])
    examples = data.load(path, split="all")
    assert (examples.shape, examples.range.grid) == ((2,), (0.5, 0.0))


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("a.csv", "id,zip,n,x\n1_000,00501,1,5\n2,10001,9007199254740993,6\n", [[5], [6]]),
        ("a.csv", "1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a.csv", "\ufeffx;y\r\n1,5;2\r\n2,5;4\r\n", [[1.5, 2], [2.5, 4]]),
        ("a.tsv", "x\ty\n1\t2\n3\t4\n", [[1, 2], [3, 4]]),
        ("a.csv", "x|y\n1|2\n\n3|4\n\n", [[1, 2], [3, 4]]),
        ("a.csv", "x|z,y\n1,2\n3,4", [[1, 2], [3, 4]]),
        ("a.csv", "date,x\n1,5\n2,6\n", [[5], [6]]),
        ("a.csv", "x,y\n1,2\nNA,3\n5,6\n", [[1, 2], [5, 6]]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out")
def test_separators_titles_decimal_commas_and_gaps_are_found(tmp_path, name, text, values):
    (tmp_path / name).write_text(text)
    np.testing.assert_array_equal(read_table(tmp_path / name).values, values)


def test_floats_stay_floats_where_all_are_whole(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1.0,+1\n2.0,-2\n")
    assert read_table(tmp_path / "a.csv").columns == (("x", "float"), ("y", "int"))


@pytest.mark.parametrize("text", ["", "a,b\n", "a,b\nc,d\n", "x\n1,\xff\n", "x\n1," + "a" * 200_000, "x\n1,\x1a\n"])
def test_what_is_no_table_of_numbers_is_one_line_with_its_name(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"^\S*a\.csv "):
        read_table(tmp_path / "a.csv")


@pytest.mark.filterwarnings("ignore:.*left out")
def test_leading_zeros_and_numbers_that_float64_may_not_hold_come_back_as_text(tmp_path):
    text = "zip;x;y\n00501;0,10;12345678901234567890\n10001;+1.5e-3;2\n"
    (tmp_path / "a.csv").write_text(text)
    table = read_table(tmp_path / "a.csv")
    write_table(tmp_path / "b.csv", table.values, table.columns, table.rest)
    assert (tmp_path / "b.csv").read_text() == text.replace("0,10", "0.1").replace("+1.5e-3", "0.0015")
    changed = [b"", b"\xff", table.rest[:-4], table.rest + b"\x1a\n"]
    for columns, rest in [((), table.rest), *((table.columns, rest) for rest in changed)]:
        with pytest.raises(ValueError, match=r".*"):
            write_table(tmp_path / "c.csv", table.values, columns, rest)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_all_of_a_table_comes_back_from_an_archive(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_text(WEATHER)
    model = random_model(small_config((2,), num_values=40, lowest=-5, grid=(0.5, 0.0), values="ordinal"), torch.float32)
    compress_files(model, path, tmp_path / "a.axl", force=True)
    decompress_files(None, tmp_path / "a.axl", tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == WEATHER.replace("-0.0", "0.0")
    decompress_files(None, tmp_path / "a.axl", tmp_path / "numbers.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "numbers.npy"), [[3, -0.5], [7, 2], [12, 0]])
