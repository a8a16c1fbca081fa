#!/usr/bin/env python3
"""What it costs to start and end four workers that do nothing: ddlaunch, mpirun
and torchrun in turn, so that all see the same machine.

Usage: startup.py DDLAUNCH [--runs N] [--workers N] [--torch-python PYTHON ...]

torchrun is `PYTHON -m torch.distributed.run`, by default of /usr/bin/python3
(Debian's python3-torch); others are named by --torch-python. As it takes seconds,
it has fewer runs. That of Debian needs -r 2 -t 1 to work at all (Python 3.11 against
PyTorch 1.13).

Wall time is from the spawn to the reaped exit of the launcher. Peak memory is what
GNU time says of the launcher in a run of its own: the most that it, or a child it has
reaped, ever had. (wait4 would tell this script no less than the script's own: Linux
counts what a process was before its exec.) The first run of each is a warm-up and not
counted.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

QUIET = os.open(os.devnull, os.O_RDWR)


def run_once(argv, environment):
    """Seconds of one run; exits when the program fails."""
    start = time.monotonic()
    pid = os.posix_spawn(argv[0], argv, environment,
                         file_actions=[(os.POSIX_SPAWN_DUP2, QUIET, 0),
                                       (os.POSIX_SPAWN_DUP2, QUIET, 1)])
    _, status = os.waitpid(pid, 0)
    seconds = time.monotonic() - start
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"startup: {' '.join(argv)} failed: {os.waitstatus_to_exitcode(status)}")
    return seconds


def peak_mib(argv, environment):
    """As GNU time has it; None where it is not installed."""
    if not os.path.exists("/usr/bin/time"):
        return None
    with tempfile.NamedTemporaryFile("r") as said:
        run_once(["/usr/bin/time", "-f", "%M", "-o", said.name, *argv], environment)
        return int(said.read()) / 1024


def torch_version(python):
    """None where there is no PyTorch."""
    run = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], cwd="/",
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None


def commands(options):
    """What is measured: name -> argv."""
    workers, found = str(options.workers), {}
    found["ddlaunch"] = [os.path.abspath(options.ddlaunch), "--nproc_per_node=" + workers,
                         "/bin/true"]
    mpirun = shutil.which("mpirun")
    if mpirun:
        found["mpirun"] = [mpirun, "--oversubscribe", "-np", workers, "/bin/true"]
    for python in options.torch_python:
        version = torch_version(python) if shutil.which(python) else None
        if version:
            streams = ["-r", "2", "-t", "1"] if version.startswith("1.13") else []
            found["torchrun " + version] = [
                shutil.which(python), "-m", "torch.distributed.run", *streams,
                "--nproc_per_node=" + workers, "--no_python", "/bin/true"]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddlaunch")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--torch-python", nargs="*", default=["/usr/bin/python3"])
    options = parser.parse_args()
    # mpirun refuses root without these; nobody else reads them.
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}

    measured = commands(options)
    runs = {name: [] for name in measured}
    for turn in range(options.runs + 1):
        for name, argv in measured.items():
            if name.startswith("torchrun") and turn > max(1, options.runs // 10):
                continue
            seconds = run_once(argv, environment)
            if turn > 0:
                runs[name].append(seconds)

    print(f"{options.workers} workers of /bin/true, in turn")
    print(f"{'':26}{'runs':>6}{'median ms':>12}{'fastest ms':>12}{'slowest ms':>12}{'peak MiB':>10}")
    for name, argv in measured.items():
        wall_ms = [1000 * seconds for seconds in runs[name]]
        peak = peak_mib(argv, environment)
        print(f"{name:26}{len(wall_ms):6}{statistics.median(wall_ms):12.1f}{min(wall_ms):12.1f}"
              f"{max(wall_ms):12.1f}{'-' if peak is None else round(peak, 1):>10}")
    medians = {name: statistics.median(results) for name, results in runs.items()}
    for name in [name for name in medians if name != "ddlaunch"]:
        print(f"ddlaunch takes {medians['ddlaunch'] / medians[name]:.3f} of the time of {name}")


if __name__ == "__main__":
    main()
