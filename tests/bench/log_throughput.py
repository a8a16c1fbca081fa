#!/usr/bin/env python3
"""How many lines a second four workers can log to files and the console at once:
ddlaunch, torchrun's tee where PyTorch is, and the workers writing straight into
files, in turn, so that all see the same machine.

Usage: log_throughput.py DDLAUNCH [--lines N] [--workers N] [--runs N] [--no-torchrun]

Each worker writes its lines one write(2) each, as an unbuffered program does, of
20 to 180 bytes. Every file is then compared with what was written, byte for byte.
Time is from the start of the launcher to its end, so torchrun's start-up is in
it; it is measured by a run of one line and given apart. The console is a pipe
that a reader empties.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BODY = bytes(range(ord(" "), ord("~"))) * 2


def lines_of(rank, count):
    for i in range(count):
        yield b"%d %d %s\n" % (rank, i, BODY[: 20 + (i * 37 + rank) % 150])


def work(count):
    for line in lines_of(int(os.environ["RANK"]), count):
        os.write(1, line)


def expected(rank, count):
    return b"".join(lines_of(rank, count))


def run(argv, environment):
    """Seconds that `argv` takes, and the lines that its console got."""
    start = time.monotonic()
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    reader = subprocess.Popen(["wc", "-l"], stdin=process.stdout, stdout=subprocess.PIPE)
    process.stdout.close()
    code = process.wait()
    seconds = time.monotonic() - start
    shown = int(reader.communicate()[0])
    if code != 0:
        sys.exit(f"log_throughput: {' '.join(argv)} failed: {code}")
    return seconds, shown


def check(logs, workers, count):
    for rank in range(workers):
        found = list(pathlib.Path(logs).rglob(f"{rank}/stdout.log"))
        if len(found) != 1 or found[0].read_bytes() != expected(rank, count):
            sys.exit(f"log_throughput: rank {rank}'s file is not what it wrote: {found}")


def plain(workers, count, logs):
    """The workers alone, each into its file."""
    start = time.monotonic()
    processes = []
    for rank in range(workers):
        directory = pathlib.Path(logs) / str(rank)
        directory.mkdir(parents=True)
        with open(directory / "stdout.log", "wb") as file:
            processes.append(subprocess.Popen(
                [sys.executable, __file__, "--work", str(count)], stdout=file,
                env={**os.environ, "RANK": str(rank)}))
    if any(process.wait() != 0 for process in processes):
        sys.exit("log_throughput: a plain worker failed")
    return time.monotonic() - start, 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddlaunch", nargs="?")
    parser.add_argument("--lines", type=int, default=500_000, help="of each worker")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-torchrun", action="store_true")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
        return

    worker = [sys.executable, os.path.abspath(__file__), "--work"]
    nproc = f"--nproc_per_node={options.workers}"

    def launcher(argv, flags):
        def go(count, logs):
            return run([*argv, nproc, *flags, "--log_dir", logs, *worker, str(count)],
                       dict(os.environ))
        return go

    ways = {
        "plain files": lambda count, logs: plain(options.workers, count, logs),
        "ddlaunch -t 3": launcher([os.path.abspath(options.ddlaunch)], ["--no-python", "-t", "3"]),
        "ddlaunch -r 3": launcher([os.path.abspath(options.ddlaunch)], ["--no-python", "-r", "3"]),
    }
    if not options.no_torchrun and importlib.util.find_spec("torch"):
        # Python 3.11 and PyTorch 1.13 together take no "3" here.
        ways["torchrun -t 1"] = launcher([sys.executable, "-m", "torch.distributed.run"],
                                         ["--no_python", "-r", "2", "-t", "1"])

    results = {name: [] for name in ways}
    start_up = {}
    with tempfile.TemporaryDirectory(prefix="ddl-bench-") as root:
        for turn in range(options.runs + 1):
            for name, go in ways.items():
                logs = os.path.join(root, f"{turn}-{name.replace(' ', '')}")
                if turn == 0:  # a warm-up, too
                    start_up[name], _ = go(1, logs)
                    continue
                results[name].append(go(options.lines, logs))
                check(logs, options.workers, options.lines)
                shutil.rmtree(logs)

    total = options.lines * options.workers
    print(f"{options.workers} workers, {options.lines} lines each, {options.runs} runs; "
          "all files are exact")
    print(f"{'':16}{'median s':>10}{'lines/s':>12}{'of it start-up s':>18}{'on the console':>16}")
    for name, runs in results.items():
        median = statistics.median(seconds for seconds, _ in runs)
        shown = statistics.median(shown for _, shown in runs) / total
        print(f"{name:16}{median:10.2f}{total / median:12.0f}{start_up[name]:18.2f}{shown:16.1%}")


if __name__ == "__main__":
    main()
