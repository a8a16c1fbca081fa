#!/usr/bin/env python3
"""Runs clang-tidy over every source of ours; any finding fails.

Usage: tidy.py BUILD_DIR [PATH_PART ...]

Takes the files and their flags from BUILD_DIR/compile_commands.json, as
run-clang-tidy does, and adds what that lacks: a file whose text, headers of
ours, flags and rules are as they were when it last passed is not read again.
clang-tidy spends about ten seconds on each. What passed is remembered in
$DDL_TIDY_CACHE, else ~/.cache/ddlaunch-tidy, by checksum.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OURS = tuple(f"{ROOT}/{d}/" for d in ("agent", "launcher", "worker_sdk", "tests"))
CACHE = os.environ.get("DDL_TIDY_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "ddlaunch-tidy")
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
CACHE_DAYS = 30


def read(path):
    with open(path, "rb") as file:
        return file.read()


def closure(path, seen):
    """Adds to `seen` the file and every header of ours that it can reach."""
    if path in seen or not os.path.isfile(path):
        return
    seen.add(path)
    for name in INCLUDE.findall(read(path)):
        name = name.decode()
        for base in (ROOT, os.path.dirname(path), f"{ROOT}/worker_sdk/include",
                     f"{ROOT}/worker_sdk/src"):
            closure(os.path.normpath(os.path.join(base, name)), seen)


def fingerprint(entry, rules):
    files = set()
    closure(entry["file"], files)
    digest = hashlib.sha256(rules)
    digest.update(entry["command"].replace(ROOT, "").encode())
    for path in sorted(files):
        digest.update(path[len(ROOT):].encode() + b"\0" + read(path) + b"\0")
    return digest.hexdigest()


def check(entry, rules, build_dir):
    """(file, findings, seconds); findings are empty when it is clean."""
    mark = os.path.join(CACHE, fingerprint(entry, rules))
    if os.path.exists(mark):
        os.utime(mark)
        return entry["file"], "", 0.0
    start = time.monotonic()
    done = subprocess.run(["clang-tidy", "--quiet", "-p", build_dir, entry["file"]],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        with open(mark, "w", encoding="utf-8"):
            pass
        return entry["file"], "", time.monotonic() - start
    return (entry["file"], done.stdout + (done.stdout.strip() == "" and done.stderr or ""),
            time.monotonic() - start)


def forget_old_marks():
    limit = time.time() - CACHE_DAYS * 86400
    for name in os.listdir(CACHE):
        path = os.path.join(CACHE, name)
        if os.path.getmtime(path) < limit:
            os.unlink(path)


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: tidy.py BUILD_DIR [PATH_PART ...]")
    build_dir, parts = sys.argv[1], sys.argv[2:]
    os.makedirs(CACHE, exist_ok=True)
    forget_old_marks()
    commands = json.loads(read(os.path.join(build_dir, "compile_commands.json")))
    entries = {e["file"]: e for e in commands
               if e["file"].startswith(OURS) and (not parts or any(p in e["file"] for p in parts))}
    if not entries:
        sys.exit(f"tidy: no source of ours in {build_dir}/compile_commands.json")
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    rules = version + read(f"{ROOT}/.clang-tidy") + read(f"{ROOT}/tests/.clang-tidy")
    bad = fresh = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check, entries[f], rules, build_dir) for f in sorted(entries)]
        for job in concurrent.futures.as_completed(jobs):
            file, findings, seconds = job.result()
            fresh += seconds > 0
            if findings:
                bad += 1
                print(findings.replace(ROOT + "/", ""), flush=True)
            elif seconds > 0:
                print(f"clean: {file[len(ROOT) + 1:]} ({seconds:.0f} s)", flush=True)
    print(f"tidy: {len(entries)} files, {fresh} read now, {bad} with findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
