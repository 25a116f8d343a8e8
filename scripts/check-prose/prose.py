"""Finds phrases that the project's prose avoids (words.txt beside this file) in documents, comments and
messages.

usage: prose.py FILE...
exit: 0 none, 1 some, each printed with file, line and what to write instead.

In documents, code blocks that show what a program prints count as well: their text is the program's. In
source files only comments and strings count. A line with `prose: quoted` is a quotation and does not count.
"""

import re
import sys
from pathlib import Path

COMMENTS = {
    ".rs": r"//[^\n]*",
    ".c": r"/\*.*?\*/|//[^\n]*",
    ".h": r"/\*.*?\*/|//[^\n]*",
    ".js": r"/\*.*?\*/|//[^\n]*",
    ".py": r"#[^\n]*",
    ".sh": r"#[^\n]*",
    ".toml": r"#[^\n]*",
}
STRINGS = r'r(#+)".*?"\1|""".*?"""|"(?:\\.|[^"\\])*"'


def phrases():
    """The phrases with what to write instead."""
    text = Path(__file__).with_name("words.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    # A phrase may continue on the next line of a comment or a string.
    gap = r"[\s/#*!\\]{1,200}"
    pairs = (line.split("\t") for line in lines)
    return [(re.compile(pattern.replace(" ", gap), re.I), instead) for pattern, instead in pairs]


def prose(path, text):
    """`text` with everything blanked that is neither comment nor string, line breaks kept."""
    if path.suffix not in COMMENTS:
        return text
    keep = [" " if char != "\n" else char for char in text]
    for found in re.finditer(f"{COMMENTS[path.suffix]}|{STRINGS}", text, flags=re.S):
        keep[found.start() : found.end()] = found[0]
    return "".join(keep)


def main():
    banned, count, files = phrases(), 0, 0
    for path in map(Path, sys.argv[1:]):
        files += 1
        text = path.read_text(errors="replace")
        lines = text.splitlines()
        for pattern, instead in banned:
            for found in pattern.finditer(prose(path, text)):
                line = text.count("\n", 0, found.start()) + 1
                if "prose: quoted" in lines[line - 1]:
                    continue
                words = re.sub(r"[\s/#*!\\]+", " ", found[0])
                print(f"{path}:{line}: “{words}”: write: {instead}")
                count += 1
    if not files:
        sys.exit("no files were given")
    print(f"{files} files, {count} phrases to avoid")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
