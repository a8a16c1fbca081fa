"""What the end-to-end tests share: run ddlaunch, find its processes, wait for events.

Every process a test starts carries a random mark in its environment, so that
survivors are found whatever they did to their process group, and are killed at
the end of the test. Waits are for events, with a bound that only a fault reaches.
"""

import collections
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

BIN_DIR = pathlib.Path(os.environ["DDL_BIN_DIR"])
DDLAUNCH = str(BIN_DIR / "ddlaunch")
TRAIN_BIN = str(BIN_DIR / "train_bin")
WAIT_S = 60  # a bound for what should take far less, also under sanitizers
MARK = "DDL_TEST_MARK"


def wait_until(condition, what, timeout_s=WAIT_S):
    """Returns condition()'s first true value; fails when none came in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s: {what}")


def free_port():
    """A port that was free a moment ago, for ddlaunch to listen on. Not one that
    the kernel hands out: another test's free port, held but not listened at, might
    be the same by then."""
    low, high = 10_000, first_ephemeral_port()
    while True:
        port = random.randrange(low, high)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
                return port
            except OSError:
                continue


def first_ephemeral_port():
    text = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    return max(int(text.split()[0]), 20_000)


# A worker that says where it is and runs until the test says it is done:
#   round rank world restarts node pid
UNTIL_DONE = """
echo "$DDL_ROUND $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $GROUP_RANK $$" >> "$1/told"
until [ -e "$1/${2:-done}" ]; do sleep 0.02; done
"""
Told = collections.namedtuple("Told", "round rank world restarts node pid")


class Job:
    """One running ddlaunch. `prefix`: a command that becomes it, such as netns.py's."""

    def __init__(self, test, args, env=None, prefix=(), **kwargs):
        self.stdout_file = open(test.path(f"stdout-{uuid.uuid4().hex}"), "w+b")
        self.stderr_file = open(test.path(f"stderr-{uuid.uuid4().hex}"), "w+b")
        kwargs.setdefault("stdin", subprocess.DEVNULL)
        kwargs.setdefault("cwd", test.dir)
        self.process = subprocess.Popen(
            [*prefix, DDLAUNCH, *map(str, args)],
            env=test.environment(env or {}),
            stdout=self.stdout_file,
            stderr=self.stderr_file,
            **kwargs,
        )

    def wait(self, timeout_s=WAIT_S):
        self.returncode = self.process.wait(timeout_s)
        return self

    def _read(self, file):
        file.flush()
        return pathlib.Path(file.name).read_bytes().decode(errors="replace")

    @property
    def stdout(self):
        return self._read(self.stdout_file)

    @property
    def stderr(self):
        return self._read(self.stderr_file)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.stdout_file.close()
        self.stderr_file.close()


class E2eTest(unittest.TestCase):
    def setUp(self):
        self._temp = tempfile.TemporaryDirectory(prefix="ddl-e2e-")
        self.dir = self._temp.name
        self.mark = uuid.uuid4().hex
        self._jobs = []

    def tearDown(self):
        for job in self._jobs:
            job.close()
        # The supervisor of a ddlaunch that was killed cleans up first.
        deadline = time.monotonic() + 20
        while self.marked() and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in self.marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        left = lambda: list(pathlib.Path(self.dir).glob("ddlaunch-*"))
        try:
            wait_until(lambda: not left(), "the gateways' directories are removed", timeout_s=20)
        finally:
            self._temp.cleanup()

    def path(self, name):
        return os.path.join(self.dir, name)

    def environment(self, extra):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "DDL_"))}
        env[MARK] = self.mark
        env["XDG_RUNTIME_DIR"] = self.dir  # where gateways make their directories
        env.update(extra)
        return env

    def script(self, name, body):
        path = self.path(name)
        pathlib.Path(path).write_text("#!/bin/sh\n" + body)
        os.chmod(path, 0o755)
        return path

    def start(self, *args, env=None, **kwargs):
        job = Job(self, args, env, **kwargs)
        self._jobs.append(job)
        return job

    def launch(self, *args, env=None, **kwargs):
        return self.start(*args, env=env, **kwargs).wait()

    def told(self):
        """What the UNTIL_DONE workers have said so far, each as a Told."""
        try:
            lines = pathlib.Path(self.path("told")).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Told(*map(int, line.split())) for line in lines]

    def wait_for_world(self, world, later_than=0):
        """Waits for a whole round of this size; returns its number."""
        def whole():
            ranks = collections.defaultdict(set)
            for one in self.told():
                if one.world == world and one.round > later_than:
                    ranks[one.round].add(one.rank)
            return max((r for r, known in ranks.items() if len(known) == world), default=None)
        try:
            return wait_until(whole, f"a round of {world} after round {later_than}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}\n{self.said()}") from None

    def said(self):
        """What all jobs of this test have said so far, for messages of failures."""
        return "\n".join(f"---- {job.process.args[-8:]}: {job.process.poll()}\n{job.stderr}"
                         for job in self._jobs)

    def be_done(self, name="done"):
        """Lets the UNTIL_DONE workers end whose second argument is this name."""
        pathlib.Path(self.path(name)).touch()

    def marked(self, **environment):
        """Living processes with this test's mark (and these variables)."""
        wanted = {f"{MARK}={self.mark}".encode()}
        wanted |= {f"{k}={v}".encode() for k, v in environment.items()}
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                variables = pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # gone, or a zombie
            if wanted <= set(variables):
                found.append(int(entry))
        return sorted(found)

    def assert_nothing_left(self, timeout_s=WAIT_S):
        wait_until(lambda: not self.marked(), "every process of the job is gone", timeout_s)

    def assert_one_line_error(self, job, *texts):
        """One clear message, nothing else."""
        lines = job.stderr.strip().splitlines()
        self.assertEqual(len(lines), 1, job.stderr)
        for text in texts:
            self.assertIn(str(text), lines[0])
