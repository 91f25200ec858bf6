"""Weigh the source: nodes of its syntax trees without annotations, docstrings and expression contexts.

python tools/weight.py

Prints the weight of src by room, and all nodes a line of code: 9 is easy to read. Fails if src is heavier than LIMIT.
Neither types nor explanations have weight, and lines are free.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "axial_transformers"
LIMIT = 118_650
"""Nodes of src. What raises it says in its commit what users get for it."""


def texts_of(node: ast.AST) -> Iterator[ast.Expr]:
    """Yield the statements of a body that are texts only."""
    body = getattr(node, "body", None)
    for statement in body if isinstance(body, list) else []:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield statement


def weight(tree: ast.AST) -> int:
    """Return the number of nodes that count."""
    left_out = set[int]()
    for node in ast.walk(tree):
        types = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for part in [*types, *texts_of(node)]:
            if isinstance(part, ast.AST):
                left_out |= {id(inner) for inner in ast.walk(part)}
    counted = (node for node in ast.walk(tree) if not isinstance(node, ast.expr_context))
    return sum(1 for node in counted if id(node) not in left_out)


def lines_of_code(text: str, tree: ast.AST) -> int:
    """Return the number of lines that are neither empty, nor comments, nor docstrings."""
    texts = set[int]()
    for node in ast.walk(tree):
        for statement in texts_of(node):
            texts |= {*range(statement.lineno, statement.end_lineno + 1)}
    lines = enumerate(text.split("\n"), start=1)
    return sum(1 for number, line in lines if line.strip() and line.strip()[0] != "#" and number not in texts)


def main() -> int:
    """Print the weight of each room; return 1 if src is too heavy."""
    weights, nodes, lines = Counter[str](), Counter[str](), Counter[str]()
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        for name in (path.relative_to(SOURCE).parts[0], "src"):
            weights[name] += weight(tree)
            nodes[name] += sum(1 for _ in ast.walk(tree))
            lines[name] += lines_of_code(text, tree)
    for name, count in weights.items():
        print(f"{name:20} {count:7,} nodes, {nodes[name] / lines[name]:4.1f} a line of code")
    if weights["src"] > LIMIT:
        print(f"src weighs {weights['src']:,} nodes, more than {LIMIT:,}: take something away, or say what it gives")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
