"""The list of planted faults stays true: each has its place, once, and its tests."""

import ast
import json
import sys

import pytest

from tests.paths import ROOT

sys.path.append(str(ROOT / "tools"))

from mutants import SOURCE, Mutant

MUTANTS = [Mutant(**fields) for fields in json.loads((ROOT / "tools" / "mutants.json").read_text())]


def test_the_place_of_every_fault_is_there_once():
    for mutant in MUTANTS:
        text = (ROOT / SOURCE / mutant.file).read_text()
        planted = mutant.planted(text)
        assert planted is not None, mutant
        if mutant.file.endswith(".py"):
            compile(planted, mutant.file, "exec")


TEXT = """
def f(x):
    return x + 1

class A:
    def f(self, x):
        def inner():
            super().g()
        return g(x) + x  #  laid out by hand
"""


@pytest.mark.parametrize(
    ("function", "old", "new", "line", "planted"),
    [
        ("f", "x + 1", "x - 1", "return x + 1", "return x - 1"),
        ("A.f", "(g(x)\n + x)", "x", "return g(x) + x", "return x"),
        ("A.f", "return g(x) + x", "return 2", "return g(x) + x", "return 2"),
        ("A.f.inner", "super().g()", "pass", "super().g()", "pass"),
    ],
)
def test_a_fault_is_planted_by_function_and_syntax(function, old, new, line, planted):
    mutant = Mutant("", "chosen", "a.py", old, new, [], function)
    assert mutant.planted(TEXT) == ast.unparse(ast.parse(TEXT)).replace(line, planted)


@pytest.mark.parametrize(("function", "old"), [("A.f", "x"), ("A.f", "x + 1"), ("A.g", "x + 1")])
def test_a_place_that_is_missing_or_there_twice_takes_no_fault(function, old):
    assert Mutant("", "chosen", "a.py", old, "y", [], function).planted(TEXT) is None


def test_the_tests_of_every_fault_are_there():
    for mutant in MUTANTS:
        assert mutant.tests, mutant
        for test in mutant.tests:
            file, name = test.split("::")
            assert f"\ndef {name}(" in (ROOT / file).read_text(), test
