#!/usr/bin/env python3
"""Reads the repository and fails on what no compiler sees: includes against the
arrows of the layout, sources that no CMakeLists names, overlong files, sources
without an opening comment, paths of one machine.

Usage: lint.py ROOT. Prints one line a finding; exits 1 when there is any.
"""

import os
import re
import sys

MAX_LINES = 500

# Who may include whom: the longest matching prefix on the left decides, and
# what it includes of ours must start with one on the right.
PROTO = "ddlaunch/v1/"
ARROWS = {
    "agent/base/": ["agent/base/"],
    "agent/plan/": ["agent/base/", "agent/plan/"],
    "agent/plan_wire/": ["agent/base/", "agent/plan/", "agent/plan_wire/", PROTO],
    "agent/core/": ["agent/base/", "agent/plan/", "agent/core/"],
    "agent/store/": ["agent/base/", "agent/plan/", "agent/core/", "agent/store/", PROTO],
    "agent/wire/": ["agent/base/", "agent/plan/", "agent/plan_wire/", "agent/core/",
                    "agent/wire/", PROTO],
    "agent/service/": ["agent/base/", "agent/plan/", "agent/core/", "agent/store/",
                       "agent/wire/", "agent/service/", PROTO],
    "agent/client/": ["agent/base/", "agent/plan/", "agent/core/", "agent/wire/",
                      "agent/client/", PROTO],
    "launcher/": ["agent/", "launcher/", PROTO],
    "worker_sdk/": ["agent/base/", "agent/plan/", "agent/plan_wire/", "worker_sdk/", "ddl/", PROTO],
}
OURS = ("agent/", "launcher/", "worker_sdk/", "tests/", "ddl/", PROTO)

# The pure parts: standard library and a little Abseil; no thread, no clock, no
# randomness, no output.
PURE = ("agent/core/", "agent/plan/", "agent/client/session.")
PURE_ABSL = re.compile(r"absl/(status|time|strings)/")
STANDARD = re.compile(r"[a-z_0-9]+")
IMPURE_STANDARD = {
    "atomic", "condition_variable", "fstream", "future", "iostream", "mutex", "random",
    "semaphore", "shared_mutex", "stop_token", "syncstream", "thread",
}
IMPURE_CALL = re.compile(r"\bMonotonicNow\s*\(|\b(system|steady)_clock::now\b")

PUBLIC_HEADERS = "worker_sdk/include/"
NOT_IN_PUBLIC = re.compile(r"grpc|google/protobuf|\.pb\.h|nccl|gloo|cuda|spdlog|^agent/|^launcher/")
GRPC = re.compile(r"^grpc(pp|\+\+)?/|\.grpc\.pb\.h$")
SPDLOG = re.compile(r"^(spdlog|fmt)/")
REACTOR_HEADER = re.compile(r"^(agent/service|agent/client|launcher/gateway)/.*_reactor\.h$")

SOURCE_DIRS = ("agent", "launcher", "worker_sdk", "tests", "proto", "deploy", ".ci")
LENGTH_DIRS = ("agent/", "launcher/", "worker_sdk/", "proto/")
CODE = (".h", ".cc", ".cu", ".proto")
SCRIPTS = (".py", ".sh", ".cmake")
TEXT = CODE + SCRIPTS + (".txt", ".md", ".json", ".yaml", ".yml", ".in")
# Put together here so that this file does not find itself.
FOREIGN_PATH = re.compile(r"(?<![\w.~-])/" + "work" + r"/")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")')


def source_files(root):
    """Relative paths of the repository's files that this lint reads."""
    found = [name for name in os.listdir(root) if os.path.isfile(os.path.join(root, name))]
    for top in SOURCE_DIRS:
        for directory, children, names in os.walk(os.path.join(root, top)):
            children[:] = [c for c in children if c != "__pycache__"]
            relative = os.path.relpath(directory, root)
            found += [os.path.join(relative, name) for name in names]
    return sorted(found)


def is_build_file(path):
    return os.path.basename(path) == "CMakeLists.txt" or path.endswith(".cmake")


def is_text(path):
    return path.endswith(TEXT)


def includes_of(lines):
    """(line number, what is included, in angle brackets?)"""
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) or match.group(2), match.group(1) is not None


def check_arrows(path, included):
    layer = max((p for p in ARROWS if path.startswith(p)), key=len, default=None)
    if layer and included.startswith(OURS) and not included.startswith(tuple(ARROWS[layer])):
        yield f"wrong arrow: {layer} must not include {included}"


def check_pure(path, included, angled):
    if not path.startswith(PURE):
        return
    if angled and included in IMPURE_STANDARD:
        yield f"the core and the plan are pure: no <{included}>"
    elif not included.startswith(OURS) and not PURE_ABSL.match(included) and not (
            angled and STANDARD.fullmatch(included)):
        yield f"the core and the plan use only the standard library and Abseil: no {included}"


def check_headers(path, included):
    if not path.endswith(".h"):
        return
    own = included.startswith("ddl/")
    if path.startswith(PUBLIC_HEADERS) and not own and NOT_IN_PUBLIC.search(included):
        yield f"a public header must not show {included}"
    if SPDLOG.search(included):
        yield f"no header includes {included}: logging stays in the .cc files"
    if GRPC.search(included) and not REACTOR_HEADER.match(path):
        yield f"no header includes {included}, but a service's or client's *_reactor.h"


def check_code(path, lines):
    for number, included, angled in includes_of(lines):
        for finding in (*check_arrows(path, included), *check_pure(path, included, angled),
                        *check_headers(path, included)):
            yield number, finding
    if path.startswith(PURE):
        for number, line in enumerate(lines, 1):
            if IMPURE_CALL.search(line):
                yield number, "the core and the plan are pure: time is passed in, not read"


def check_opening(path, lines):
    """The first lines of a source say what it is for."""
    if path.endswith(CODE):
        opened = bool(lines) and lines[0].startswith(("//", "/*"))
    elif path.endswith(SCRIPTS):
        body = lines[1:] if lines and lines[0].startswith("#!") else lines
        opened = bool(body) and body[0].startswith(("#", '"""'))
    else:
        opened = True
    if not opened:
        yield 1, "no opening comment that says what this file is for"


def check_text(path, lines):
    if path.startswith(LENGTH_DIRS) and path.endswith(CODE + SCRIPTS) and len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines; split it below {MAX_LINES}"
    for number, line in enumerate(lines, 1):
        if FOREIGN_PATH.search(line):
            yield number, "a path of one machine"


def named_sources(path, lines):
    """The sources that one CMake file names, as paths from the root."""
    directory = os.path.dirname(path)
    for word in re.split(r"[\s()\"]+", "\n".join(lines)):
        if word.endswith((".cc", ".cu")):
            word = word.replace("${CMAKE_CURRENT_SOURCE_DIR}/", "")
            if word.startswith("${PROJECT_SOURCE_DIR}/"):
                yield word.replace("${PROJECT_SOURCE_DIR}/", "")
            else:
                yield os.path.normpath(os.path.join(directory, word))


def check_dead_sources(texts):
    """A source that no CMake file names is built by none."""
    named = {source for path, lines in texts.items() if is_build_file(path)
             for source in named_sources(path, lines)}
    for path in texts:
        if path.endswith((".cc", ".cu")) and path not in named:
            yield path, 1, "no CMakeLists.txt names it: dead code"


def lint(root):
    """Every finding as (path, line, text)."""
    texts = {}
    for path in source_files(root):
        if is_text(path) or is_build_file(path):
            with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                texts[path] = file.read().splitlines()
    findings = []
    for path, lines in texts.items():
        checks = [check_opening(path, lines), check_text(path, lines)]
        if path.endswith((".h", ".cc", ".cu")):
            checks.append(check_code(path, lines))
        findings += [(path, number, text) for check in checks for number, text in check]
    findings += check_dead_sources(texts)
    return sorted(findings), len(texts)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: lint.py ROOT")
    findings, read = lint(sys.argv[1])
    for path, number, text in findings:
        print(f"{path}:{number}: {text}")
    print(f"lint: {read} files read, {len(findings)} findings")
    sys.exit(1 if findings or read == 0 else 0)


if __name__ == "__main__":
    main()
