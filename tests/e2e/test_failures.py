"""What a user is told when workers failed: the root cause, across nodes, with its words."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

from harness import DDLAUNCH, E2eTest, free_port, wait_until

PATIENCE = 120  # importing torch on a loaded machine


def torch_python():
    """A Python that has PyTorch; None: there is none."""
    for python in dict.fromkeys((sys.executable, shutil.which("python3"), "/usr/bin/python3")):
        found = python and subprocess.run(
            [python, "-c", "import importlib.util as u, sys; "
                           "sys.exit(u.find_spec('torch') is None)"], check=False)
        if found and found.returncode == 0:
            return python
    return None


TORCH_PYTHON = torch_python()

RECORD = """import os, sys
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("the sample is broken on rank " + os.environ["RANK"])
main()
"""

# Rank 2 raises and is slow to leave; the others fail in the collective that it broke,
# and are gone before it.
BROKEN_COLLECTIVE = """import os, sys, time
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group("gloo")
    t = torch.ones(1)
    dist.all_reduce(t)
    if dist.get_rank() == 2:
        raise ValueError("the loss is not a number")
    try:
        for _ in range(100):
            dist.all_reduce(t)
    except RuntimeError as error:
        # Words that nobody knows: only the time tells that it came second.
        raise RuntimeError("step failed") from (error if sys.argv[1] == "blame" else None)
try:
    main()
finally:
    if os.environ["RANK"] == "2":
        dist.destroy_process_group()
        time.sleep(1)  # as a program that has much to put away
"""


def root_cause(text):
    """The entry below `Root Cause`, its fields by name."""
    entry = text.split("Root Cause (first observed failure):")[1]
    return dict(re.findall(r"^  (\w+)\s*: ?(.*)$", entry, re.M)), entry


class FailureCase(E2eTest):
    def python(self, name, body):
        path = self.path(name)
        pathlib.Path(path).write_text(body)
        return path

    def error_file_of(self, *args, **env):
        """The job's result, and what it wrote for the one who started it."""
        path = self.path("outer.json")
        job = self.start(*args, env={"TORCHELASTIC_ERROR_FILE": path, **env}).wait(PATIENCE)
        return job, json.loads(pathlib.Path(path).read_text())


class FailureTest(FailureCase):
    def test_segmentation_fault_is_named(self):
        job = self.launch(self.script("crash.sh", "kill -SEGV $$; sleep 60\n"))
        self.assertEqual(job.returncode, 139)
        fields, _ = root_cause(job.stderr)
        self.assertRegex(fields["traceback"], r"Signal 11 \(SIGSEGV\) received by PID \d+")
        self.assertIn("native code", fields["hint"])

    def test_kill_by_somebody_is_not_taken_for_the_oom_killer(self):
        job = self.launch(self.script("kill.sh", "kill -KILL $$; sleep 60\n"))
        self.assertEqual(job.returncode, 137)
        fields, _ = root_cause(job.stderr)
        self.assertIn("SIGKILL", fields["traceback"])
        self.assertIn("out-of-memory killer", fields["hint"])
        # The kernel counts the whole host's, where another may just have been killed.
        self.assertNotIn("The out-of-memory killer", fields["hint"])

    def test_exit_code_of_a_shell_is_explained(self):
        job = self.launch(self.script("typo.sh", "no-such-command-here\n"))
        self.assertEqual(job.returncode, 127)
        self.assertIn("a command was not found", root_cause(job.stderr)[0]["hint"])

    def test_bus_error_says_how_full_shared_memory_is(self):
        job = self.launch(self.python("bus.py", "import mmap, tempfile\n"
                                      "f = tempfile.TemporaryFile(); f.truncate(8192)\n"
                                      "m = mmap.mmap(f.fileno(), 8192); f.truncate(0); m[5000]\n"))
        self.assertEqual(job.returncode, 128 + signal.SIGBUS)
        self.assertRegex(root_cause(job.stderr)[0]["hint"],
                         r"/dev/shm has [\d.]+ \w+, of which [\d.]+ \w+ are free now")

    @unittest.skipIf(os.geteuid() != 0, "makes a control group")
    def test_oom_killer_is_named_for_sure(self):
        limit = 256 << 20  # room for a ddlaunch with sanitizers
        group, procs = self.memory_group(limit)
        try:
            # It offers itself, so that the kernel never takes ddlaunch.
            program = self.python("eat.py", "import os\nif os.environ['RANK'] == '1':\n"
                                            "    open('/proc/self/oom_score_adj', 'w').write('1000')\n"
                                            f"    x = bytearray({4 * limit})\n"
                                            "import time; time.sleep(600)\n")
            job = self.launch("--nproc_per_node=2", program,
                              preexec_fn=lambda: pathlib.Path(procs).write_text(str(os.getpid())))
            self.assertEqual(job.returncode, 137, job.stderr)
            fields, _ = root_cause(job.stderr)
            self.assertIn("rank      : 1", job.stderr)
            self.assertIn("The out-of-memory killer: the kernel counts 1 such kill", fields["hint"])
            self.assertIn("limit is 256.0 MiB", fields["hint"])
        finally:
            wait_until(lambda: not pathlib.Path(procs).read_text(), "the control group is empty")
            os.rmdir(group)

    def memory_group(self, limit):
        """A control group with so much memory, of either version: its path, its procs."""
        name = f"ddl-test-{self.mark[:8]}"
        v1, v2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")
        try:
            if (v1 / "memory.limit_in_bytes").exists():
                group = v1 / name
                group.mkdir()
                (group / "memory.limit_in_bytes").write_text(str(limit))
                return str(group), str(group / "cgroup.procs")
            if "memory" in (v2 / "cgroup.subtree_control").read_text().split():
                group = v2 / name
                group.mkdir()
                (group / "memory.max").write_text(str(limit))
                (group / "memory.swap.max").write_text("0")
                return str(group), str(group / "cgroup.procs")
        except OSError as error:
            self.skipTest(f"no control group can be made: {error}")
        self.skipTest("no control group limits memory here")

    def test_many_failures_are_a_bounded_list_with_the_total(self):
        script = self.script("all.sh", "trap '' TERM; echo $RANK > $1/up-$RANK\n"
                             "until [ -e $1/go ]; do sleep 0.05; done\n"
                             'test "$RANK" = 17 && { echo "the first" >&2; exit 5; }\n'
                             "until [ -e $1/more ]; do sleep 0.05; done; exit 6\n")
        job = self.start("--nproc_per_node=64", script, self.dir)
        wait_until(lambda: len(list(pathlib.Path(self.dir).glob("up-*"))) == 64, "all are up")
        self.be_done("go")
        wait_until(lambda: "rank 17" in job.stderr, "the first failure is told")
        self.be_done("more")
        job.wait()
        self.assertEqual(job.returncode, 5, job.stderr)
        lines = job.stderr.splitlines()
        first = next(i for i, line in enumerate(lines) if re.search(r"rank \d+", line))
        self.assertIn("rank 17", lines[first])
        self.assertLess(first, lines.index("Failures:"))
        self.assertIn("64 workers failed in all", job.stderr)
        self.assertLess(len(lines), 120)
        self.assertIn("the first", root_cause(job.stderr)[1])

    def test_outer_error_file_without_a_workers_one_says_what_is_known(self):
        job, error = self.error_file_of("--nproc_per_node=2", self.script(
            "fail.sh", 'test "$RANK" = 1 || sleep 600; echo "no sample" >&2; exit 7\n'))
        self.assertEqual(job.returncode, 7)
        self.assertEqual(error["message"]["message"], "no sample")
        self.assertEqual(error["message"]["errorCode"], 7)
        self.assertLess(abs(int(error["message"]["extraInfo"]["timestamp"]) - time.time()), 600)

    def test_outer_error_file_of_a_signal_has_its_number(self):
        _, error = self.error_file_of(self.script("kill.sh", "kill -KILL $$; sleep 60\n"))
        self.assertEqual(error["message"]["errorCode"], -9)
        self.assertIn("SIGKILL", error["message"]["message"])

    def test_outer_error_file_of_a_job_that_never_began(self):
        job, error = self.error_file_of(
            "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
            "--rdzv-conf=join_timeout=1", "/bin/true")
        self.assertEqual(job.returncode, 1)
        self.assertIn("1 of 2 nodes", error["message"]["message"])
        self.assertEqual(error["message"]["errorCode"], 1)

    def test_success_writes_no_outer_error_file_and_workers_do_not_see_it(self):
        outer = self.path("outer.json")
        script = self.script("look.sh", 'echo "$TORCHELASTIC_ERROR_FILE"\n')
        job = self.launch("--nproc_per_node=2", script, env={"TORCHELASTIC_ERROR_FILE": outer})
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertNotIn(outer, job.stdout)
        self.assertFalse(os.path.exists(outer))

    def test_message_that_is_a_text_is_read_and_passed_up(self):
        script = self.script("old.sh", "echo '{\"message\": \"old form\", \"timestamp\": 17}' "
                                       "> $TORCHELASTIC_ERROR_FILE; exit 4\n")
        job, error = self.error_file_of(script)
        self.assertIn("old form", root_cause(job.stderr)[1])
        self.assertEqual(error, {"message": "old form", "timestamp": 17})

    def test_exception_that_was_caught_and_logged_is_no_failure(self):
        program = self.python("logs.py", "import os, sys, time, traceback\n"
                              "if os.environ['RANK'] == '0':\n"
                              "    try:\n"
                              "        raise ValueError('no label')\n"
                              "    except ValueError:\n"
                              "        traceback.print_exc()\n"
                              "    open(sys.argv[1], 'w').close()\n"
                              "    time.sleep(600)\n"
                              "while not os.path.exists(sys.argv[1]):\n"
                              "    time.sleep(0.01)\n"
                              "raise ConnectionResetError('the database has gone')\n")
        job = self.launch("--nproc_per_node=2", program, self.path("logged"))
        self.assertEqual(job.returncode, 1)
        fields, entry = root_cause(job.stderr)
        self.assertEqual(fields["rank"], "1 (local_rank: 1)", job.stderr)
        self.assertIn("ConnectionResetError: the database has gone", entry)

    def test_error_file_that_is_nested_without_end_is_left_alone(self):
        program = self.python("deep.py", "import os, sys\n"
                              "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:\n"
                              "    f.write('{\"message\":' + 400000 * '[' + 400000 * ']' + '}')\n"
                              "print('its own words', file=sys.stderr)\n"
                              "sys.exit(3)\n")
        job, error = self.error_file_of(program)
        self.assertEqual(job.returncode, 3)
        self.assertIn("its own words", root_cause(job.stderr)[1])
        self.assertEqual(error["message"]["message"], "its own words")

    def test_outer_error_file_of_a_stop_by_the_user_has_the_signals_number(self):
        outer = self.path("outer.json")
        job = self.start(self.script("wait.sh", "echo up\nexec sleep 600\n"),
                         env={"TORCHELASTIC_ERROR_FILE": outer})
        wait_until(lambda: "up" in job.stdout, "the worker is up")
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143)
        message = json.loads(pathlib.Path(outer).read_text())["message"]
        self.assertEqual(message["errorCode"], -15)
        self.assertIn("stopped by the user", message["message"])

    def test_nested_ddlaunch_passes_the_cause_up(self):
        inner = self.script("inner.sh", 'exec "$@"\n')
        fail = self.script("fail.sh", 'test "$RANK" = 1 && { echo "deep down" >&2; exit 9; }\n'
                                      "sleep 600\n")
        job, error = self.error_file_of(inner, DDLAUNCH, "--nproc_per_node=2", fail)
        self.assertEqual(job.returncode, 9)
        self.assertIn("deep down", root_cause(job.stderr)[1])
        self.assertEqual(error["message"]["message"], "deep down")
        self.assertEqual(error["message"]["errorCode"], 9)


@unittest.skipIf(TORCH_PYTHON is None, "needs PyTorch (python3-torch)")
class TorchFailureTest(FailureCase):
    """The same with PyTorch's own @record, Gloo and torchrun."""

    def test_record_is_read_and_passed_up(self):
        script = self.python("train.py", RECORD)
        job, error = self.error_file_of("--nproc_per_node=1", script, PYTHON_EXEC=TORCH_PYTHON)
        self.assertEqual(job.returncode, 1, job.stderr)
        _, entry = root_cause(job.stderr)
        self.assertIn("Traceback (most recent call last)", entry)
        self.assertIn("ValueError: the sample is broken on rank 0", entry)
        message = error["message"]
        self.assertEqual(message["message"], "ValueError: the sample is broken on rank 0")
        self.assertIn("in main", message["extraInfo"]["py_callstack"])
        self.assertEqual(message["errorCode"], 1)

    def test_torchrun_as_the_outer_launcher_shows_the_traceback(self):
        script = self.python("train.py", RECORD)
        job = subprocess.run(
            [TORCH_PYTHON, "-m", "torch.distributed.run", "--standalone", "--no_python",
             "--nproc_per_node=1", "-r", "2", "-t", "1", DDLAUNCH, script],
            env=self.environment({"PYTHON_EXEC": TORCH_PYTHON}), cwd=self.dir,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        self.assertNotEqual(job.returncode, 0)
        entry = root_cause(job.stderr)[1]
        self.assertIn("ValueError: the sample is broken on rank 0", entry)

    def broken_collective(self, word):
        script = self.python("train.py", BROKEN_COLLECTIVE)
        endpoint = f"127.0.0.1:{free_port()}"
        jobs = [self.start("--nnodes=2", "--nproc_per_node=2", "--rdzv-backend=c10d",
                           f"--rdzv-endpoint={endpoint}", f"--node-rank={node}", script, word,
                           env={"PYTHON_EXEC": TORCH_PYTHON, "GLOO_SOCKET_IFNAME": "lo"})
                for node in (0, 1)]
        for job in jobs:
            job.wait(PATIENCE)
        for job in jobs:
            fields, entry = root_cause(job.stderr)
            self.assertIn("2 (local_rank: 0)", fields["rank"], job.stderr)
            self.assertIn("ValueError: the loss is not a number", entry)
            self.assertIn("Traceback (most recent call last)", entry)
            self.assertEqual(job.returncode, 1)

    def test_cause_is_the_rank_that_raised_not_those_whose_collective_broke(self):
        self.broken_collective("blame")

    def test_cause_is_found_by_time_where_no_words_tell(self):
        self.broken_collective("silent")


if __name__ == "__main__":
    unittest.main()
