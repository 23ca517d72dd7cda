"""Size of the package: lines by kind, public names, import cycles, constructors, words of pages.

Run ``python benchmarks/bench_size.py [CHECKOUT ...]``: one column for each checkout, such as a
worktree of an older commit. Nothing is imported; all figures are of the source.
"""

import argparse
import ast
import json
import tokenize
from pathlib import Path

PACKAGE = "sklearn_dpgen"


def count_lines(path):
    """Return the numbers of code, docstring, comment and blank lines of a file."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstring = set()
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstring |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    code, comment = set(), set()
    layout = {
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENCODING,
        tokenize.ENDMARKER,
    }
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                comment.add(token.start[0])
            elif token.type not in layout:
                code |= set(range(token.start[0], token.end[0] + 1))
    code -= docstring
    total = len(path.read_text().splitlines())
    comment -= code
    return {
        "code": len(code),
        "docstring": len(docstring),
        "comment": len(comment),
        "blank": total - len(code | docstring | comment),
    }


def module_name(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path, name, modules):
    """Return the modules of the package that a file imports, lazily or not, at run time."""
    found = set()

    def visit(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return (found & modules) - {name}


def cycles(graph):
    """Return the sizes of the strongly connected components of more than one module."""

    def reach(start):
        seen, stack = set(), [start]
        while stack:
            for after in graph[stack.pop()] - seen:
                seen.add(after)
                stack.append(after)
        return seen

    reached = {name: reach(name) for name in graph}
    found = {frozenset(b for b in reached[a] if a in reached[b]) for a in graph if a in reached[a]}
    return sorted(map(len, found), reverse=True)


def public_names(root):
    """Return the names in ``__all__`` of the package and of its public rooms."""
    names = {}
    for path in root.rglob("__init__.py"):
        name = module_name(path, root.parent)
        if "._" in name:
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names[name] = len(ast.literal_eval(node.value))
    return sum(names.values())


def longest_constructor(paths):
    """Return the largest number of parameters of a public class, and the class."""
    best = (0, "")
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and part.name == "__init__":
                        n = len(part.args.args) + len(part.args.kwonlyargs) - 1
                        best = max(best, (n, node.name))
    return f"{best[0]} ({best[1]})"


def measure(checkout):
    """Return all figures of a checkout."""
    root = checkout / PACKAGE
    paths = sorted(root.rglob("*.py"))
    lines = dict.fromkeys(("code", "docstring", "comment", "blank"), 0)
    for path in paths:
        for kind, count in count_lines(path).items():
            lines[kind] += count
    modules = {module_name(path, checkout): path for path in paths}
    graph = {name: imports(path, name, set(modules)) for name, path in modules.items()}
    circles = cycles(graph)
    tests = sorted((checkout / "tests").rglob("*.py"))
    pages = [
        *(checkout / "doc").glob("*.rst"),
        checkout / "README.rst",
        checkout / "CONTRIBUTING.rst",
    ]
    private = sum(f"{PACKAGE}." in text and "._" in text for text in map(Path.read_text, tests))
    return {
        "files": len(paths),
        "lines": sum(lines.values()),
        **{f"lines of {kind}": count for kind, count in lines.items()},
        "public names": public_names(root),
        "longest constructor": longest_constructor(paths),
        "modules in import cycles": ", ".join(map(str, circles)) or "none",
        "test files": len(tests),
        "test lines": sum(len(path.read_text().splitlines()) for path in tests),
        "test files that import private modules": private,
        "words of pages": sum(len(path.read_text().split()) for path in pages),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = [measure(checkout.resolve()) for checkout in arguments.checkouts]
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name in found[0]:
        print(f"{name:<40}" + "".join(f"{figures[name]!s:>30}" for figures in found))


if __name__ == "__main__":
    main()
