"""Tokens of Python source, with tags from its syntax tree that give the role of each name.

The tokens are those of `tokenize`. Line ends and changes of indentation are tokens without a tag.
Strings and numbers are replaced by placeholders, and comments are left out.
"""

import ast
import io
import keyword
import tokenize
from collections.abc import Iterator

TAGS = (
    "keyword", "operator", "number", "string", "docstring", "import", "function", "class",
    "argument", "keyword_argument", "attribute", "method", "call", "variable",
)  # fmt: skip
LAYOUT = {
    tokenize.NEWLINE: "<newline>", tokenize.INDENT: "<indent>", tokenize.DEDENT: "<dedent>",
}  # fmt: skip
WITHOUT_TAG = ""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def tagged(source: str) -> Iterator[tuple[str, str]]:
    """Yield the (token, tag) pairs of a file.

    >>> list(tagged("x = f(y, k=1)"))[:4]
    [('x', 'variable'), ('=', 'operator'), ('f', 'call'), ('(', 'operator')]
    """
    roles = name_roles(ast.parse(source))
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind, text, start = token.type, token.string, token.start
        if kind in LAYOUT:
            yield LAYOUT[kind], WITHOUT_TAG
        elif kind == tokenize.OP:
            yield text, "operator"
        elif kind == tokenize.NUMBER:
            yield "<number>", "number"
        elif kind == tokenize.STRING:
            yield "<string>", roles.get(start, "string")
        elif kind == tokenize.NAME:
            if previous in ("def", "class"):
                yield text, "function" if previous == "def" else "class"
            elif keyword.iskeyword(text):
                yield text, "keyword"
            else:
                yield text, roles.get(start, "variable")
            previous = text
            continue
        else:  # comments, blank lines, the end
            continue
        previous = ""


class Roles(ast.NodeVisitor):
    """Collects the tags of names and docstrings by (line, column)."""

    def __init__(self):
        self.found: dict[tuple[int, int], str] = {}
        self.arguments: list[set[str]] = []

    def role(self, node, name: str) -> None:
        """Return where a node begins."""
        self.found[node.lineno, node.col_offset] = name

    def docstring(self, node: Documented) -> None:
        """Return where the docstring of a node begins, if it has one."""
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and ast.get_docstring(node, clean=False) is not None:
            self.role(first.value, "docstring")

    def last(self, node: ast.expr | ast.alias, name: str) -> tuple[int, int]:
        """Return where the last name of a node begins: the one after a dot or after `as`."""
        assert node.end_lineno is not None and node.end_col_offset is not None  # it was parsed
        return node.end_lineno, node.end_col_offset - len(name)

    def visit_Module(self, node: ast.Module | ast.ClassDef):
        self.docstring(node)
        self.generic_visit(node)

    visit_ClassDef = visit_Module

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if not isinstance(node, ast.Lambda):
            self.docstring(node)
        taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        taken += [a for a in (node.args.vararg, node.args.kwarg) if a is not None]
        self.arguments.append({a.arg for a in taken})
        self.generic_visit(node)
        self.arguments.pop()

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_arg(self, node):
        self.role(node, "argument")
        self.generic_visit(node)

    def visit_keyword(self, node):
        if node.arg is not None:
            self.role(node, "keyword_argument")
        self.generic_visit(node)

    def visit_Name(self, node):
        if self.found.get((node.lineno, node.col_offset)) is None:
            known = any(node.id in names for names in self.arguments)
            self.role(node, "argument" if known else "variable")

    def visit_Attribute(self, node):
        self.found.setdefault(self.last(node, node.attr), "attribute")
        self.generic_visit(node)

    def visit_Call(self, node):
        if isinstance(node.func, ast.Name):
            self.role(node.func, "call")
        elif isinstance(node.func, ast.Attribute):
            self.found[self.last(node.func, node.func.attr)] = "method"
        self.generic_visit(node)

    def visit_alias(self, node):
        column = node.col_offset
        for part in node.name.split("."):
            self.found[node.lineno, column] = "import"
            column += len(part) + 1
        if node.asname:
            self.found[self.last(node, node.asname)] = "import"

    def visit_ImportFrom(self, node):
        column = node.col_offset + len("from ") + node.level
        for part in (node.module or "").split("."):
            self.found[node.lineno, column] = "import"
            column += len(part) + 1
        self.generic_visit(node)


def name_roles(tree: ast.AST) -> dict[tuple[int, int], str]:
    """Return the tags of names and docstrings by their position."""
    roles = Roles()
    roles.visit(tree)
    return roles.found
