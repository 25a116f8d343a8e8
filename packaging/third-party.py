#!/usr/bin/env python3
"""Prints which crates the program contains, with their licences, and the texts of these licences.

usage: packaging/third-party.py TARGET [OPTION...]   options of cargo, for features
Needs the crates' sources, as `cargo fetch --locked` or a vendor directory has them.
"""

import json
import pathlib
import subprocess
import sys

ROOTS = ("punctual", "punctual-guest")
NAMES = ("licen", "copying", "notice", "unlicense")


def linked(metadata):
    """The packages that the program and its guest program are linked with, procedural macros left out."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, open_ids = {}, [id for id, package in packages.items() if package["name"] in ROOTS]
    while open_ids:
        id = open_ids.pop()
        if id in found or any("proc-macro" in target["kind"] for target in packages[id]["targets"]):
            continue
        found[id] = packages[id]
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                open_ids.append(dependency["pkg"])
    outside = [package for package in found.values() if package["source"]]
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def texts(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name.lower().startswith(NAMES):
            yield path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n").strip()


def main():
    metadata = json.loads(subprocess.check_output([
        "cargo", "metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", sys.argv[1],
        *sys.argv[2:],
    ]))
    by_text = {}
    print("Crates that the program contains, and their licences.")
    print("Rust's standard library, which it contains too, is MIT OR Apache-2.0.\n")
    for package in linked(metadata):
        name = f"{package['name']} {package['version']}"
        print(f"{name}: {package['license'] or 'see its text below'}")
        for text in texts(package):
            by_text.setdefault(text, []).append(name)
    for text, names in by_text.items():
        print(f"\n{'=' * 78}\n{', '.join(dict.fromkeys(names))}\n\n{text}")


if __name__ == "__main__":
    main()
