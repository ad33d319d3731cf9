"""Objects are made of objects: a class is seldom given functions, and then few.

A function that is another object's bound method hides that the two know each other, and what it is for. A clock, a
factory or a hook may be one. `python -m tests.test_constructors` lists the classes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from pathlib import Path
from typing import Final

from tests.rooms import PRODUCT, ROOT, sources

MOST: Final = 2
#: Whose very purpose is to hold several.
TABLES: Final = {
    "coordinator/group/modern/records.py:ModernRecords": 3,  # how the records of one kind of group are read
    "runtime/purgatory.py:Watch": 4,  # an operation that waits, made with every request: no object more
    "server/apis/declaration.py:Codec": 5,  # the compiled parsers and builders of one API
    "storage/disk/system_calls.py:SystemCalls": 7,  # what the operating system has of them
}
CLASSES: Final = 94
CALLABLES: Final = 125


_ALIAS: Final = re.compile(r"^(\w+)(?:: TypeAlias)? = \(?\s*Callable\[", re.MULTILINE)
_IS_MADE: Final = re.compile(r"def __init__\(|NamedTuple\)|@dataclass")


def imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """The module and the name there of what a module imports from others."""
    blocks = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {each.asname or each.name: (node.module or "", each.name) for node in imports for each in node.names}


def is_function(annotation: ast.expr | None, named: Set[str]) -> bool:
    """Whether a parameter may be a function, by its own type or by one of those that have a name."""
    match annotation:
        case ast.Constant(value=str(text)):
            return is_function(ast.parse(text, mode="eval").body, named)
        case ast.BinOp(left=left, right=right):
            return is_function(left, named) or is_function(right, named)
        case ast.Subscript(value=value):
            return is_function(value, named)
        case ast.Name(id=name):
            return name == "Callable" or name in named
    return False


def made_of(node: ast.ClassDef) -> list[tuple[str, ast.expr | None]]:
    """The parameters of a class's constructor, or the fields that make one."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            given = part.args
            return [(each.arg, each.annotation) for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    makers = map(ast.unparse, (*node.decorator_list, *node.bases))
    if not any("dataclass" in maker or "NamedTuple" in maker for maker in makers):
        return []
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)]
    later = [part for part in fields if part.value is not None and "init=False" in ast.unparse(part.value)]
    return [(ast.unparse(part.target), part.annotation) for part in fields if part not in later]


def given_functions(root: Path, paths: list[Path]) -> dict[str, list[str]]:
    """`path:class` of each class that is given functions, and what it calls them."""
    texts = {path: path.read_text() for path in paths}
    aliases = {(module_of(root, path), name) for path, text in texts.items() for name in _ALIAS.findall(text)}
    imports = ["Callable", *{f"from {module} import" for module, _ in aliases}]
    found: dict[str, list[str]] = {}
    for path, text in texts.items():
        if not any(each in text for each in imports) or not _IS_MADE.search(text):
            continue  # most are not worth parsing
        tree, own = ast.parse(text), module_of(root, path)
        named = {name for name, source in imported(tree).items() if source in aliases}
        named |= {name for module, name in aliases if module == own}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                given = [name for name, kind in made_of(node) if is_function(kind, named)]
                if given:
                    found[f"{path.relative_to(root)}:{node.name}"] = given
    return found


def module_of(root: Path, path: Path) -> str:
    return ".".join(("ottla", *path.relative_to(root).with_suffix("").parts))


def test_a_function_is_found_by_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "Step = Callable[[], None]\n"
        "class Given:\n    def __init__(self, clock: Clock, step: Step | None, *, of: 'Callable[[int], int]'): ...\n"
        "class Table(NamedTuple):\n    read: Callable[..., bytes]\n    size: int\n"
        "class Plain:\n    def call(self, step: Step): ...\n"
    )
    (tmp_path / "b.py").write_text(
        "from ottla.a import Step\n@dataclass\nclass Made:\n    step: Step\n    later: Step = field(init=False)\n"
    )
    assert given_functions(tmp_path, [tmp_path / "a.py", tmp_path / "b.py"]) == {
        "a.py:Given": ["step", "of"],
        "a.py:Table": ["read"],
        "b.py:Made": ["step"],
    }


def test_classes_are_given_few_functions() -> None:
    found = given_functions(ROOT, sources(*PRODUCT))
    assert {name: len(given) for name, given in found.items() if len(given) > MOST} == TABLES
    # Fewer are better: then these numbers go down.
    assert len(found) <= CLASSES
    assert sum(map(len, found.values())) <= CALLABLES


if __name__ == "__main__":
    listed = given_functions(ROOT, sources(*PRODUCT))
    for name, given in sorted(listed.items(), key=lambda item: (-len(item[1]), item[0])):
        print(len(given), name, ", ".join(given))
    print(sum(map(len, listed.values())), "in", len(listed))
