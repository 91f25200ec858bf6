"""Tables: their columns of numbers are read, and come back from an archive."""

import os

import numpy as np
import pytest
import torch

from axial_transformers import data, storage
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
        ("a.csv", "date;x\n1,234;5\n2,345;6\n", [[5], [6]]),
        ("a.csv", "x,y\n1,2\nNA,3\n5,6\n", [[1, 2], [5, 6]]),
        ("a.csv", "x,y\r1,2\r3,4\r", [[1, 2], [3, 4]]),
        ("a.csv", "x;mixed;y\n1;1,5;2\n2;1.5;3\n", [[1, 2], [2, 3]]),
        ("a.csv", 'x,y\n"1,5",2\n"2,5",3\n', [[2], [3]]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*left out")
def test_separators_titles_decimal_commas_and_gaps_are_found(tmp_path, name, text, values):
    (tmp_path / name).write_text(text)
    np.testing.assert_array_equal(read_table(tmp_path / name).values, values)


def test_floats_stay_floats_where_all_are_whole(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1.0,+1\n2.0,-2\n")
    assert read_table(tmp_path / "a.csv").columns == (("x", "float"), ("y", "int"))


ODD = {"U+2028": "\u2028", "U+0085": "\x85", "form feed": "\f", "vertical tab": "\v", "carriage return": "\r"}


@pytest.mark.filterwarnings("ignore:.*left out")
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_the_ends_of_lines_end_rows(tmp_path, odd, end):
    rows = ["a,note,b,c", f"1,see{odd}10,2,3", "4,y,5,6", "7,z,8,9"]
    (tmp_path / "a.csv").write_bytes(end.join(rows).encode())
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv").values, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])


def test_a_table_that_was_written_again_is_read_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in range(3):
        (tmp_path / "a.csv").write_text(f"x,y\n{value},1\n")
        os.utime("a.csv", (10**9, 10**9))
        np.testing.assert_array_equal(data.load("a.csv", split="all").values[..., 0], [[value, 1]])


@pytest.mark.filterwarnings("ignore:.*left out")
def test_commas_before_three_digits_are_asked_about(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x;y\n1,234;1\n12,345;2\n")
    with pytest.raises(ValueError, match=r"a\.csv: column x holds 1,234, 1\.234 or 1234: set data\.decimal"):
        read_table(path)
    np.testing.assert_array_equal(read_table(path, decimal=",").values, [[1.234, 1], [12.345, 2]])
    np.testing.assert_array_equal(read_table(path, decimal=".").values, [[1], [2]])
    examples = data.load(path, data.DataConfig(decimal=",", grid=(0.001, 0.0)), "all")
    np.testing.assert_array_equal(examples.values[..., 0], [[1234, 1000], [12345, 2000]])
    path.write_text("x;y\n1,234;1\n12,3;2\n")
    np.testing.assert_array_equal(read_table(path).values, [[1.234, 1], [12.3, 2]])


def test_types_are_those_of_whole_columns_of_long_tables(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 300_000 + "1.5,2\n")
    table = read_table(tmp_path / "a.csv")
    assert table.columns == (("x", "float"), ("y", "int"))
    assert table.values[-1].tolist() == [1.5, 2]


def test_without_the_extra_one_line_names_it(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("x\n1\n")
    monkeypatch.setattr(storage, "find_spec", lambda wanted: None if wanted == "pandas" else True)
    with pytest.raises(ValueError, match=r"a\.csv needs the package pandas: pip install '.*\[tables\]'"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("text", ["", "a,b\n", "a,b\nc,d\n", "x\n1,\xff\n", "x\n1,2\n", 'x\n"1'])
def test_what_is_no_table_of_numbers_is_one_line_with_its_name(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"^\S*a\.csv "):
        read_table(tmp_path / "a.csv")


@pytest.mark.filterwarnings("ignore:.*left out")
def test_leading_zeros_and_numbers_that_float64_may_not_hold_are_text(tmp_path):
    (tmp_path / "a.csv").write_text("zip;x;y\n00501;0,10;12345678901234567890\n10001;+1.5e-3;2\n".replace("+1.", "+1,"))
    table = read_table(tmp_path / "a.csv")
    assert table.columns == (("x", "float"),)
    assert table.values.tolist() == [[0.1], [0.0015]]


def test_numbers_are_written_with_their_bits_and_titles(tmp_path):
    values = np.random.default_rng(0).normal(size=(50, 3)) * 10.0 ** np.arange(-9, 18, 9)
    values[:, 1] = np.rint(values[:, 1])
    columns = (("a", "float"), ('"b", c', "int"), ("", "float"))
    for name in ("a.csv", "a.tsv"):
        write_table(tmp_path / name, values, columns)
        table = read_table(tmp_path / name)
        assert table.columns == columns
        np.testing.assert_array_equal(table.values, values)
    write_table(tmp_path / "b.csv", values[:, 1:2], [("", "int")])
    assert read_table(tmp_path / "b.csv").titles is None
    for wrong in ((), columns[:2]):
        with pytest.raises(ValueError, match=r".*"):
            write_table(tmp_path / "c.csv", values, wrong)


def test_the_columns_of_numbers_come_back_from_an_archive_and_what_does_not_is_said(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_text(WEATHER)
    model = random_model(small_config((2,), num_values=40, lowest=-5, grid=(0.5, 0.0), values="ordinal"), torch.float32)
    with pytest.warns(UserWarning, match="left out, since they hold text or times: time, station$"):
        compress_files(model, path, tmp_path / "a.axl", force=True)
    decompress_files(None, tmp_path / "a.axl", tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == '"wind, m/s",temperature\n3,-0.5\n7,2.0\n12,0.0\n'
    decompress_files(None, tmp_path / "a.axl", tmp_path / "numbers.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "numbers.npy"), [[3, -0.5], [7, 2], [12, 0]])


def test_columns_whose_decimals_differ_are_asked_about(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("revenue;rate\n1.234;0,5\n2.345;0,25\n12.345;0,75\n")
    with pytest.raises(ValueError, match=r"rate.* revenue.*data\.decimal"):
        read_table(path)
    with pytest.warns(UserWarning, match="left out.*revenue"):
        np.testing.assert_array_equal(read_table(path, decimal=",").values, [[0.5], [0.25], [0.75]])


def test_a_first_row_of_numbers_is_data_unless_a_label_column_is_in_it(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("country,2019,2020\na,1,2\nb,3,4\nb,5,6\n")
    with pytest.warns(UserWarning, match="first row") as said:
        assert read_table(path).values.tolist() == [[2019, 2020], [1, 2], [3, 4], [5, 6]]
    assert len(said) == 2
    table = read_table(path, label_column="country")
    assert table.values.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.titles == ("2019", "2020")
    assert table.classes.tolist() == ["a", "b", "b"]
