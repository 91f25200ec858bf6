"""The list of planted faults stays true: each has its text, its kind of origin, and its tests."""

import ast
import json

from tests.paths import ROOT

MUTANTS = json.loads((ROOT / "tools" / "mutants.json").read_text())
SOURCE = ROOT / "src" / "axial_transformers"


def test_the_text_of_every_fault_occurs_once_and_makes_a_program():
    for fault in MUTANTS:
        text = (SOURCE / fault["file"]).read_text()
        assert text.count(fault["old"]) == 1, fault
        if fault["file"].endswith(".py"):
            ast.parse(text.replace(fault["old"], fault["new"]))


def test_the_tests_of_every_fault_are_there():
    for fault in MUTANTS:
        assert fault["tests"], fault
        for test in fault["tests"]:
            file, name = test.split("::")
            assert f"\ndef {name}(" in (ROOT / file).read_text(), test
