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

STRING = r'r(#+)".*?"\1|""".*?"""|"(?:\\.|[^"\\])*"'
COMMENTS = {
    ".rs": r"//[^\n]*",
    ".c": r"/\*.*?\*/|//[^\n]*",
    ".h": r"/\*.*?\*/|//[^\n]*",
    ".js": r"/\*.*?\*/|//[^\n]*",
    ".py": r"#[^\n]*",
    ".sh": r"#[^\n]*",
    ".toml": r"#[^\n]*",
}
PROSE = {suffix: re.compile(f"{comment}|{STRING}", re.S) for suffix, comment in COMMENTS.items()}
# A phrase may continue on the next line of a comment or a string.
GAP = r"[\s/#*!\\]{1,200}"


def phrases():
    """The phrases, as patterns for text in lower case, with what to write instead."""
    text = Path(__file__).with_name("words.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pairs = (line.split("\t") for line in lines)
    return [(re.compile(pattern.replace(" ", GAP)), instead) for pattern, instead in pairs]


def blank(code):
    """Spaces for `code`, line breaks kept."""
    return "\n".join(" " * len(line) for line in code.split("\n"))


def prose(path, text):
    """`text` with everything blanked that is neither comment nor string, line breaks kept."""
    if path.suffix not in PROSE:
        return text
    parts, end = [], 0
    for found in PROSE[path.suffix].finditer(text):
        parts += [blank(text[end : found.start()]), found[0]]
        end = found.end()
    return "".join([*parts, blank(text[end:])])


def main():
    banned, count, files = phrases(), 0, 0
    # Most files have none of the phrases, which one pattern finds much faster than all of them in turn.
    any_of_them = re.compile("|".join(pattern.pattern for pattern, _ in banned))
    for path in map(Path, sys.argv[1:]):
        files += 1
        text = path.read_text(errors="replace")
        searched = prose(path, text).lower()
        if not any_of_them.search(searched):
            continue
        lines = text.splitlines()
        for pattern, instead in banned:
            for found in pattern.finditer(searched):
                line = text.count("\n", 0, found.start()) + 1
                if "prose: quoted" in lines[line - 1]:
                    continue
                words = re.sub(GAP, " ", text[found.start() : found.end()])
                print(f"{path}:{line}: “{words}”: write: {instead}")
                count += 1
    if not files:
        sys.exit("no files were given")
    print(f"{files} files, {count} phrases to avoid")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
