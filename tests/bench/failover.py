#!/usr/bin/env python3
"""How long a job stands still when something is killed, on loopback.

  worker   kill -9 of one worker of two nodes with --max-restarts=1, to the first
           worker of the restart; then: to its last worker
  node     kill -9 of one ddlaunch of two nodes, a third waiting as a spare, to
           the survivor's first worker of the next round. In it are the second
           (the reconnect grace) that a node whose stream broke has to come back

Usage: failover.py DDLAUNCH [--runs N] [--workers N] [--python PYTHON]
                   [--no-peer]

Workers end at once when told to. torchrun (of PyTorch 1.13, where PYTHON has it)
runs the same two trials in turn with ddlaunch, so that both see the same machine;
its agents do not take part again with a spare waiting, so there the survivor is
to go on alone (--nnodes=1:2).

Each worker reports through one pipe; times are those at which this script, which
sleeps in poll, has seen the report.
"""

import argparse
import os
import pathlib
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WORKER = """#!/bin/sh
echo "$$ $NODE $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT" > "$1"
exec sleep 600
"""
START_S = 60  # a bound for what takes far less
GIVE_UP_S = 30  # nobody restarts any more
NODES = ["n0", "n1"]


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listener(port):
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"failover: nobody listens on port {port}")


class Trial:
    """One job on its way: its launchers, and what its workers report."""

    def __init__(self, directory):
        self.directory = directory
        self.fifo = os.path.join(directory, "reports")
        self.script = os.path.join(directory, "worker.sh")
        os.mkfifo(self.fifo)
        pathlib.Path(self.script).write_text(WORKER)
        os.chmod(self.script, 0o755)
        # Kept open for writing too, so that it never reads as ended.
        self.reports = os.open(self.fifo, os.O_RDWR | os.O_CLOEXEC)
        self.buffer = b""
        self.launchers = {}

    def start(self, node, argv):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PET_")}
        environment["NODE"] = node
        log = open(os.path.join(self.directory, f"{node}.log"), "wb")
        self.launchers[node] = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            cwd=self.directory, start_new_session=True)
        log.close()
        return self.launchers[node]

    def next_report(self, deadline):
        """(time, pid, node, world, restarts) of the next worker; None: none came."""
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.reports], [], [], left)[0]:
                return None
            self.buffer += os.read(self.reports, 4096)
        line, self.buffer = self.buffer.split(b"\n", 1)
        pid, node, world, restarts = line.decode().split()
        return time.monotonic(), int(pid), node, int(world), int(restarts)

    def await_workers(self, count):
        """The reports of a world of `count` workers, by node."""
        deadline = time.monotonic() + START_S
        workers = {}
        while sum(map(len, workers.values())) < count:
            report = self.next_report(deadline)
            if report is None:
                sys.exit("failover: the workers did not start:\n" + self.logs())
            # A torchrun that came first may have begun alone.
            if report[3] == count:
                workers.setdefault(report[2], []).append(report)
        return workers

    def await_log(self, node, text):
        deadline = time.monotonic() + START_S
        while text not in pathlib.Path(self.directory, f"{node}.log").read_text():
            if time.monotonic() > deadline:
                sys.exit(f"failover: {node} never said '{text}':\n" + self.logs())
            time.sleep(0.01)

    def logs(self):
        return "".join(f"{node}: {pathlib.Path(self.directory, f'{node}.log').read_text()}\n"
                       for node in self.launchers)

    def close(self):
        for process in self.launchers.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.launchers.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(self.reports)


class Ddlaunch:
    name = "ddlaunch"

    def __init__(self, program):
        self.program = os.path.abspath(program)

    def start(self, trial, workers, spare):
        """The workers' reports, by node."""
        port = free_port()
        trial.start("coordinator", [self.program, "coordinator", f"--listen=127.0.0.1:{port}"])
        argv = [self.program, "--nnodes=2", f"--nproc-per-node={workers}", "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=failover",
                "--rdzv-conf=is_host=0", "--max-restarts=1", trial.script, trial.fifo]
        for node in NODES:
            trial.start(node, argv)
        running = trial.await_workers(len(NODES) * workers)
        if spare:
            trial.start("spare", argv)
            trial.await_log("spare", "spare 1")
        return running


class Torchrun:
    name = "torchrun"

    def __init__(self, python):
        self.python = python

    def start(self, trial, workers, spare):
        port = free_port()
        for node in NODES:
            # 1.13 on Python 3.11 fails without -r and -t. It polls every 5 s; its
            # newer versions every 0.1 s.
            trial.start(node, [
                self.python, "-m", "torch.distributed.run", f"--nnodes={'1:2' if spare else '2'}",
                f"--nproc_per_node={workers}", "--rdzv_backend=c10d",
                f"--rdzv_endpoint=127.0.0.1:{port}", "--rdzv_id=failover",
                "--rdzv_conf=last_call_timeout=3", "--monitor_interval=0.1",
                "--max_restarts=1", "-r", "2", "-t", "1", "--no_python", trial.script, trial.fifo])
            if node == NODES[0]:
                await_listener(port)  # it hosts the store, and is not the one killed
        return trial.await_workers(len(NODES) * workers)


def kill_worker(launcher, workers):
    """(s to the first worker of the restart, s to the last)"""
    with tempfile.TemporaryDirectory(prefix="ddl-failover-") as directory:
        trial = Trial(directory)
        try:
            victim = launcher.start(trial, workers, spare=False)["n1"][0]
            began = time.monotonic()
            os.kill(victim[1], signal.SIGKILL)
            times = []
            while len(times) < 2 * workers:
                report = trial.next_report(began + GIVE_UP_S)
                if report is None:
                    return None
                # torchrun counts restarts in each agent by itself.
                if launcher.name == "ddlaunch" and report[4] != 1:
                    sys.exit(f"failover: restart count {report[4]}, not 1\n" + trial.logs())
                times.append(report[0] - began)
            return times[0], times[-1]
        finally:
            trial.close()


def kill_node(launcher, workers):
    """(s to the survivor's first worker of the next round,)"""
    with tempfile.TemporaryDirectory(prefix="ddl-failover-") as directory:
        trial = Trial(directory)
        try:
            launcher.start(trial, workers, spare=True)
            began = time.monotonic()
            trial.launchers["n1"].kill()
            while True:
                report = trial.next_report(began + GIVE_UP_S)
                if report is None:
                    return None
                if report[2] == "n0":
                    return (report[0] - began,)
        finally:
            trial.close()


def has_torch(python):
    return subprocess.run([python, "-c", "import torch.distributed.run"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def row(title, name, samples, column):
    times = [1000 * sample[column] for sample in samples if sample is not None]
    missing = len(samples) - len(times)
    if not times:
        return f"{title:28}{name:10}  no restart within {GIVE_UP_S} s in {missing} runs"
    return (f"{title:28}{name:10}{statistics.median(times):11.1f}{min(times):11.1f}"
            f"{max(times):11.1f}" + (f"  and {missing} never" if missing else ""))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddlaunch")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="on each node")
    parser.add_argument("--python", default="python3", help="one that has PyTorch")
    parser.add_argument("--no-peer", action="store_true", help="without torchrun")
    options = parser.parse_args()

    launchers = [Ddlaunch(options.ddlaunch)]
    if options.no_peer:
        pass
    elif has_torch(options.python):
        launchers.append(Torchrun(options.python))
    else:
        print(f"failover: {options.python} has no PyTorch; ddlaunch alone is measured")

    worker = {launcher.name: [] for launcher in launchers}
    node = {launcher.name: [] for launcher in launchers}
    for _ in range(options.runs):
        for launcher in launchers:
            worker[launcher.name].append(kill_worker(launcher, options.workers))
            node[launcher.name].append(kill_node(launcher, options.workers))

    print(f"2 nodes of {options.workers} workers on this machine, {options.runs} runs, in turn")
    print(f"{'':38}{'median ms':>11}{'fastest ms':>11}{'slowest ms':>11}")
    for name, samples in worker.items():
        print(row("a worker, to the first", name, samples, 0))
        print(row("a worker, to the last", name, samples, 1))
    for name, samples in node.items():
        print(row("a node, to the survivor's", name, samples, 0))
    if any(sample is None for sample in worker["ddlaunch"] + node["ddlaunch"]):
        sys.exit("failover: ddlaunch did not restart")


if __name__ == "__main__":
    main()
