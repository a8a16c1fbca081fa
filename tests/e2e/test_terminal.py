"""ddlaunch at a terminal, under a shell with job control: what is typed, Ctrl-C and
Ctrl-Z, the background, a terminal that is closed. And as the first process of a
container."""

import os
import pathlib
import pty
import select
import signal
import subprocess
import unittest

from harness import DDLAUNCH, E2eTest, wait_until

UP = 'touch "$1/up-$RANK"\n'


def state_of(pid):
    """"T" is stopped, "S" sleeps; empty: gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


class Terminal:
    """A shell with job control at a terminal of its own."""

    def __init__(self, test):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(test.dir)
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"],
                      {**test.environment({}), "PS1": "ready> ", "HISTFILE": ""})
        self.seen = b""
        self.wait_for("ready> ")

    def read(self):
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError:  # nobody has the other end any more
                return

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait_for(self, text):
        def come():
            self.read()
            return text.encode() in self.seen
        try:
            wait_until(come, f"{text!r} at the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.seen!r}") from None

    def close(self):
        """The window is closed: a hangup for the shell and its jobs."""
        os.close(self.fd)
        os.waitpid(self.pid, 0)


class TerminalTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.terminal = None

    def tearDown(self):
        if self.terminal is not None:
            self.terminal.close()
        super().tearDown()

    def open_terminal(self):
        self.terminal = Terminal(self)
        return self.terminal

    def close_terminal(self):
        self.terminal.close()
        self.terminal = None

    def type_launch(self, body, after="", nproc=2):
        """Types a launch at a new terminal; when its workers are up, the terminal."""
        script = self.script("worker.sh", body)
        terminal = self.open_terminal()
        terminal.type(f"{DDLAUNCH} --nproc_per_node={nproc} {script} {self.dir}{after}\n")
        for rank in range(nproc):
            wait_until(lambda r=rank: os.path.exists(self.path(f"up-{r}")), f"rank {rank} is up")
        return terminal

    def workers(self):
        return self.marked(RANK=0) + self.marked(RANK=1)

    def test_what_is_typed_reaches_local_rank_0(self):
        terminal = self.type_launch(UP + 'read line; echo "$RANK got <$line>"\n')
        terminal.wait_for("[default1]:1 got <>")
        terminal.type("hello there\n")
        terminal.wait_for("[default0]:0 got <hello there>")

    def test_in_the_background_it_is_not_stopped_by_its_input(self):
        terminal = self.type_launch(UP + 'until [ -e "$1/go" ]; do sleep 0.05; done\n', after=" &")
        terminal.type("echo the answer $((40 + 2))\n")
        terminal.wait_for("the answer 42")
        self.assertNotIn("T", {state_of(pid) for pid in self.marked()})
        pathlib.Path(self.path("go")).touch()
        terminal.type("wait; echo ended $?\n")
        terminal.wait_for("ended 0")

    def test_ctrl_c_ends_it_with_130(self):
        terminal = self.type_launch(UP + "sleep 600\n", after="; echo ended $?")
        terminal.type("\x03")
        terminal.wait_for("ended 130")
        wait_until(lambda: not self.workers(), "the workers are gone")

    def test_ctrl_z_stops_the_workers_too_and_fg_continues_them(self):
        terminal = self.type_launch(UP + 'until [ -e "$1/go" ]; do sleep 0.05; done; echo done\n')
        workers = self.workers()
        terminal.type("\x1a")
        wait_until(lambda: {state_of(pid) for pid in workers} - {""} == {"T"},
                   "the workers are stopped")
        terminal.wait_for("Stopped")
        pathlib.Path(self.path("go")).touch()
        terminal.type("fg\n")
        terminal.wait_for("[default0]:done")
        terminal.wait_for("[default1]:done")
        terminal.type("echo ended $?\n")
        terminal.wait_for("ended 0")

    def test_stopped_job_can_be_ended(self):
        terminal = self.type_launch(UP + "sleep 600\n")
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        terminal.type("kill %1\n")  # SIGTERM; bash adds SIGCONT for a stopped job
        wait_until(lambda: len(self.marked()) == 1, "all but the shell are gone")
        terminal.type("true\n")  # the shell tells of its jobs before it prompts
        terminal.wait_for("Exit 143")

    def test_terminal_closed_ends_everything(self):
        self.type_launch("trap 'touch \"$1/term-$RANK\"; exit' TERM\n" + UP +
                         "while :; do sleep 0.05; done\n")
        self.close_terminal()
        self.assert_nothing_left()
        self.assertTrue(os.path.exists(self.path("term-0")), "the workers were asked first")

    def test_terminal_closed_under_nohup_goes_on(self):
        script = self.script("worker.sh", UP + 'until [ -e "$1/go" ]; do sleep 0.05; done\n'
                             'touch "$1/end-$RANK"\n')
        terminal = self.open_terminal()
        terminal.type(f"nohup {DDLAUNCH} --nproc_per_node=2 {script} {self.dir} > out 2>&1 &\n")
        for rank in range(2):
            wait_until(lambda r=rank: os.path.exists(self.path(f"up-{r}")), f"rank {rank} is up")
        self.close_terminal()
        pathlib.Path(self.path("go")).touch()
        for rank in range(2):
            wait_until(lambda r=rank: os.path.exists(self.path(f"end-{r}")), f"rank {rank} ended")
        self.assert_nothing_left()


class ContainerTest(E2eTest):
    """PID 1 of a PID namespace has no default effects of signals and inherits orphans."""

    def start_as_first(self, body):
        prefix = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("no PID namespaces here")
        script = self.script("worker.sh", body)
        job = self.start("--nproc_per_node=2", script, self.dir, prefix=prefix)
        for rank in range(2):
            wait_until(lambda r=rank: os.path.exists(self.path(f"up-{r}")), f"rank {rank} is up")
        children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children")
        return job, int(children.read_text().split()[0])

    def test_term_is_obeyed(self):
        job, first = self.start_as_first(UP + "sleep 600\n")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143, job.stderr)
        self.assert_nothing_left()

    def test_orphans_leave_no_zombies(self):
        job, first = self.start_as_first(
            'for i in 1 2 3 4 5 6 7 8; do (sleep 0 & ); (setsid sleep 0 & ); done\n' + UP +
            'until [ -e "$1/go" ]; do sleep 0.05; done\n')
        namespace = os.readlink(f"/proc/{first}/ns/pid")

        def zombies():
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if (state_of(pid) == "Z"
                            and os.readlink(f"/proc/{pid}/ns/pid") == namespace):
                        found.append(pid)
                except OSError:
                    pass
            return found

        wait_until(lambda: not zombies(), "the orphans are reaped")
        pathlib.Path(self.path("go")).touch()
        self.assertEqual(job.wait().returncode, 0, job.stderr)


if __name__ == "__main__":
    unittest.main()
