"""Finds circles between the files of each crate, and of each folder of C.

A file depends on another one when it names something that the other one defines: a Rust file by a path
(`use crate::a::B`, `super::C`, `a::f()`), a C file by a call of a function that is not static. Re-exports
(`pub use`) are followed to the file that defines the name and are no dependency themselves; test modules do
not count.

usage: circles.py FOLDER...      a folder with src/lib.rs or src/main.rs, or with C files
exit: 0 no circle, 1 a circle, which is printed with the names that tie it.
"""

import re
import sys
from pathlib import Path

NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def without_comments(text):
    """`text` without comments and the contents of strings, and without what only tests compile."""
    pattern = r'//[^\n]*|/\*.*?\*/|r(#+)".*?"\1|r"[^"]*"|"(?:\\.|[^"\\])*"|\'(?:\\.[^\']*|[^\'\\])\''
    text = re.sub(pattern, lambda found: '""' if found[0][0] in 'r"' else " ", text, flags=re.S)
    return re.split(r"#\[cfg\((?:all\()?(?:test|loom)\b[^\]]*\]\s*(?:pub )?mod \w+ \{", text)[0]


def leaves(tree):
    """The paths of a `use` tree: `a::{b, c::d as e}` has (a::b, b) and (a::c::d, e)."""
    tree = tree.strip()
    opened = tree.find("{")
    if opened < 0:
        path, _, alias = (part.strip() for part in re.sub(r"\s+", " ", tree).partition(" as "))
        return [(path, alias or path.split("::")[-1])] if path else []
    prefix, inner, parts, depth, start = tree[:opened], tree[opened + 1 : tree.rfind("}")], [], 0, 0
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    found = [leaf for part in parts for leaf in leaves(part)]
    whole = prefix.rstrip(":").strip()
    return [
        (whole, whole.split("::")[-1]) if path == "self" else (prefix.strip() + path, alias)
        for path, alias in found
    ]


class Crate:
    """The modules of a crate, one for each file."""

    def __init__(self, source):
        self.files = {}
        for file in sorted(source.rglob("*.rs")):
            parts = list(file.relative_to(source).with_suffix("").parts)
            if parts[-1] in ("tests", "testing") or "tests" in parts or parts == ["main"]:
                continue
            if parts[-1] in ("mod", "lib"):
                parts.pop()
            self.files[tuple(parts)] = file
        if () not in self.files and (source / "main.rs").exists():
            self.files[()] = source / "main.rs"
        self.text = {module: without_comments(file.read_text()) for module, file in self.files.items()}
        self.uses, self.exports = {}, {}
        for module, text in self.text.items():
            self.uses[module], self.exports[module] = [], {}
            for public, tree in re.findall(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", text):
                for path, alias in leaves(tree):
                    if public:
                        self.exports[module][alias] = path
                    else:
                        self.uses[module].append((path, alias))

    def follow(self, module, path, seen=()):
        """The file and the name to which `path` in `module` leads; `None`: outside of the crate."""
        parts = [part.strip() for part in path.split("::")]
        first = parts[0]
        if first == "crate":
            at, parts = (), parts[1:]
        elif first in ("super", "self"):
            at = module
            while parts and parts[0] in ("super", "self"):
                at = at[:-1] if parts[0] == "super" else at
                parts = parts[1:]
        elif module + (first,) in self.files:
            at = module
        else:
            return None
        while parts and at + (parts[0],) in self.files:
            at, parts = at + (parts[0],), parts[1:]
        if not parts:
            return at, None
        exported = self.exports.get(at, {}).get(parts[0])
        if exported and (at, parts[0]) not in seen:
            further = self.follow(at, "::".join([exported, *parts[1:]]), (*seen, (at, parts[0])))
            if further:
                return further
        return at, parts[0]

    def ties(self, module):
        """What `module`'s file takes from each other file."""
        ties, text = {}, self.text[module]
        body = re.sub(r"\buse\s+[^;]+;", " ", text)
        body = re.sub(r"\b(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+;", " ", body)

        def add(found):
            if found and found[0] != module and found[0] in self.files:
                ties.setdefault(found[0], set()).add(found[1] or "(module)")

        modules = {}
        for path, alias in self.uses[module]:
            found = self.follow(module, path)
            if found and found[1] is None:
                modules[alias] = path
            else:
                add(found)
        for child in self.files:
            if child[:-1] == module and child:
                modules.setdefault(child[-1], "self::" + child[-1])
        for path in re.findall(rf"(?<![\w:])({NAME}(?:::{NAME})+)", body):
            head, rest = path.split("::", 1)
            if head in ("crate", "super", "self"):
                add(self.follow(module, path))
            elif head in modules:
                add(self.follow(module, modules[head] + "::" + rest))
        return ties

    def arrows(self):
        ties = {m: self.ties(m) for m in self.files}
        return {self.files[m]: {self.files[t]: names for t, names in ties[m].items()} for m in ties}


def c_arrows(folder):
    """The same for the C files of `folder`, which is one program or module."""
    texts = {file: without_comments(file.read_text()) for file in sorted(folder.glob("*.c"))}
    start = rf"^(?!static|typedef|#|else|struct {NAME} \{{)[A-Za-z_]"
    define = start + rf"[^;{{}}=#]*?\b({NAME})\([^;{{}}]*\)\s*\{{"
    defined = {}
    for file, text in texts.items():
        for name in re.findall(define, text, flags=re.M):
            defined.setdefault(name, file)
    arrows = {}
    for file, text in texts.items():
        arrows[file] = {}
        for name in set(re.findall(rf"(?<![\w.>])({NAME})\s*\(", text)):
            if name in defined and defined[name] != file:
                arrows[file].setdefault(defined[name], set()).add(name)
    return arrows


def circles(arrows):
    """The sets of files that reach each other (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in arrows.get(file, {}):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            circle = stack[stack.index(file) :]
            del stack[stack.index(file) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for file in arrows:
        if file not in index:
            visit(file)
    return found


def main():
    sys.setrecursionlimit(10_000)
    count = files = 0
    for folder in map(Path, sys.argv[1:]):
        arrows = Crate(folder / "src").arrows() if (folder / "src").is_dir() else c_arrows(folder)
        files += len(arrows)
        for circle in circles(arrows):
            count += 1
            print(f"circle of {len(circle)} files:")
            for file in circle:
                for other, names in sorted(arrows[file].items()):
                    if other in circle:
                        print(f"  {file} -> {other}: {', '.join(sorted(names))}")
    if not files:
        sys.exit("no source files were found")
    print(f"{files} files, {count} circles")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
