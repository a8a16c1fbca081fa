#!/usr/bin/env python3
"""What it costs to start and end four workers that do nothing: ddlaunch and
mpirun in turn, so that both see the same machine.

Usage: startup.py DDLAUNCH [--runs N] [--workers N]

Wall time is from the spawn to the reaped exit of the launcher. Peak memory is
the launcher's own ru_maxrss as wait4 gives it: the most that it, or a child it
has reaped, ever had. The first run of each is a warm-up and not counted.
"""

import argparse
import os
import shutil
import statistics
import sys
import time

QUIET = os.open(os.devnull, os.O_RDWR)


def run_once(argv, environment):
    """(seconds, peak KiB) of one run; exits when the program fails."""
    start = time.monotonic()
    pid = os.posix_spawn(argv[0], argv, environment,
                         file_actions=[(os.POSIX_SPAWN_DUP2, QUIET, 0),
                                       (os.POSIX_SPAWN_DUP2, QUIET, 1)])
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"startup: {' '.join(argv)} failed: {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_maxrss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddlaunch")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()

    commands = {"ddlaunch": [os.path.abspath(options.ddlaunch),
                             f"--nproc_per_node={options.workers}", "/bin/true"]}
    mpirun = shutil.which("mpirun")
    if mpirun:
        commands["mpirun"] = [mpirun, "--oversubscribe", "-np", str(options.workers), "/bin/true"]
    else:
        print("startup: no mpirun here; ddlaunch alone is measured")
    # mpirun refuses root without these; ddlaunch does not read them.
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    runs = {name: [] for name in commands}
    for turn in range(options.runs + 1):
        for name, argv in commands.items():
            result = run_once(argv, environment)
            if turn > 0:
                runs[name].append(result)

    print(f"{options.workers} workers of /bin/true, {options.runs} runs each, in turn")
    print(f"{'':10}{'median ms':>12}{'fastest ms':>12}{'slowest ms':>12}{'peak MiB':>10}")
    for name, results in runs.items():
        wall_ms = [1000 * seconds for seconds, _ in results]
        peak_mib = max(peak for _, peak in results) / 1024
        print(f"{name:10}{statistics.median(wall_ms):12.1f}{min(wall_ms):12.1f}"
              f"{max(wall_ms):12.1f}{peak_mib:10.1f}")
    if "mpirun" in runs:
        medians = {name: statistics.median(s for s, _ in results) for name, results in runs.items()}
        print(f"ddlaunch takes {medians['ddlaunch'] / medians['mpirun']:.2f} of mpirun's time")


if __name__ == "__main__":
    main()
