"""The workers' output: on the console while it happens, in files to the last byte."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

from harness import DDLAUNCH, E2eTest, free_port, wait_until


class OutputTest(E2eTest):
    def python(self, name, body):
        path = self.path(name)
        pathlib.Path(path).write_text(body)
        return path

    def logs(self, name="logs"):
        """The job's log files: path below the job's directory -> bytes."""
        root = pathlib.Path(self.path(name))
        return {str(p.relative_to(root)).split("/", 1)[1]: p.read_bytes()
                for p in root.rglob("*.log")}

    def test_each_print_of_python_is_seen_at_once(self):
        # Nothing but the first line lets the program go on to the second.
        script = self.python("slow.py", "import os, sys, time\nprint('first')\n"
                             "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n"
                             "print('second')\n")
        process = subprocess.Popen(
            [DDLAUNCH, "--nproc_per_node=2", script, self.path("go")], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=self.environment({}), text=True)
        self.addCleanup(process.stdout.close)
        self.assertEqual({process.stdout.readline(), process.stdout.readline()},
                         {"[default0]:first\n", "[default1]:first\n"})
        self.be_done("go")
        self.assertEqual(sorted(process.stdout), ["[default0]:second\n", "[default1]:second\n"])
        self.assertEqual(process.wait(), 0)

    def test_restart_keeps_the_logs_of_each_attempt(self):
        script = self.script("retry.sh", 'echo "attempt $TORCHELASTIC_RESTART_COUNT"\n'
                                         'test "$TORCHELASTIC_RESTART_COUNT" = 2\n')
        job = self.launch("--max-restarts=2", "-r", "3", "--log-dir", self.path("logs"), script)
        self.assertEqual(job.returncode, 0, job.stderr)
        logs = self.logs()
        for attempt in range(3):
            self.assertEqual(logs[f"attempt_{attempt}/0/stdout.log"],
                             f"attempt {attempt}\n".encode())

    def test_filtered_lines_have_files_of_their_own(self):
        script = self.script("say.sh", 'echo "loss, $RANK"; echo "step $RANK"; echo "bad" >&2\n')
        job = self.launch("--nproc_per_node=2", "--duplicate-stdout-filters=s,,,loss,, ,zzz",
                          "--duplicate_stderr_filters=bad", "--log_dir", self.path("logs"), script)
        self.assertEqual(job.returncode, 0, job.stderr)
        logs = self.logs()
        self.assertEqual(sorted(logs["attempt_0/filtered_stdout.log"].splitlines()),
                         [b"[default0]:loss, 0", b"[default1]:loss, 1"])
        self.assertEqual(sorted(logs["attempt_0/filtered_stderr.log"].splitlines()),
                         [b"[default0]:bad", b"[default1]:bad"])
        self.assertIn("[default0]:step 0\n", job.stdout)

    def test_prefix_may_name_the_host_and_the_rank(self):
        script = self.script("say.sh", "echo hi\n")
        endpoint = f"127.0.0.1:{free_port()}"
        jobs = [self.start("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                           f"--node-rank={node}", script,
                           env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE":
                                "[${hostname} rank $rank] "})
                for node in (0, 1)]
        for node, job in enumerate(jobs):
            self.assertEqual(job.wait().stdout, f"[{os.uname().nodename} rank {node}] hi\n")

    def test_line_of_fifty_megabytes_takes_no_memory_and_is_in_the_file(self):
        script = self.python("long.py", "import sys\n"
                             "for _ in range(500): sys.stdout.write('x' * 100_000)\n")
        argv = [DDLAUNCH, "--nproc_per_node=2", "-t", "1", "--log-dir", self.path("logs"), script]
        with open(self.path("console"), "wb") as console:
            pid = os.posix_spawn(argv[0], argv, self.environment({}), file_actions=[
                (os.POSIX_SPAWN_DUP2, console.fileno(), 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
            _, status, usage = os.wait4(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        self.assertLess(usage.ru_maxrss, 100 * 1024 * self.memory_factor())
        for rank in range(2):
            self.assertEqual(self.logs()[f"attempt_0/{rank}/stdout.log"], b"x" * 50_000_000)

    def memory_factor(self):
        """The address sanitizer takes much for itself."""
        return 20 if "asan" in DDLAUNCH else 1

    def test_paused_console_stops_neither_heartbeats_nor_signals_nor_other_ranks(self):
        # Rank 0's node has a console that nobody reads; it must not be lost, its
        # files must be whole, rank 1 must go on, and Ctrl-C must work.
        lines = 200_000  # more than the console's buffer holds
        text = "line %d of a console that nobody reads, far too long for its buffer"
        script = self.python("flood.py", "import os, sys, time\nd = sys.argv[1]\n"
                             "rank = os.environ['RANK']\n"
                             "if rank == '0':\n"
                             f"    for i in range({lines}): print({text!r} % i)\n"
                             "open(f'{d}/past-{rank}', 'w').close()\n"
                             "time.sleep(600)\n")
        endpoint = f"127.0.0.1:{free_port()}"
        common = [DDLAUNCH, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                  "--rdzv-conf=heartbeat_timeout=3,keep_alive_interval=0.5", "-t", "3",
                  "--log-dir", self.path("logs")]
        read_end, write_end = os.pipe()
        paused = subprocess.Popen([*common, "--node-rank=0", script, self.dir], stdout=write_end,
                                  stderr=subprocess.DEVNULL, env=self.environment({}))
        os.close(write_end)
        other = self.start(*common[1:], "--node-rank=1", script, self.dir)
        try:
            for rank in range(2):
                wait_until(lambda: os.path.exists(self.path(f"past-{rank}")), f"rank {rank}")
            # Silent for longer than the limit, it would be lost and the round over.
            with self.assertRaises(subprocess.TimeoutExpired):
                paused.wait(4)
            self.assertIsNone(other.process.poll(), other.stderr)
            files = [p.read_bytes() for p in
                     pathlib.Path(self.path("logs")).rglob("attempt_0/0/stdout.log")]
            self.assertIn(b"".join((text % i).encode() + b"\n" for i in range(lines)), files)
            paused.send_signal(signal.SIGINT)
            self.assertEqual(paused.wait(30), 130)
        finally:
            paused.kill()
            paused.wait()
            os.close(read_end)

    @unittest.skipIf(os.geteuid() != 0, "mounts a file system that is soon full")
    def test_full_disk_is_one_warning_and_training_goes_on(self):
        logs = self.path("small")
        os.mkdir(logs)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", logs],
                                 check=False, stderr=subprocess.PIPE)
        if mounted.returncode != 0:
            self.skipTest(f"no file system can be mounted: {mounted.stderr}")
        try:
            script = self.script("much.sh", 'seq 50000; test "$RANK" = 0 || echo "done $RANK"\n')
            job = self.launch("--nproc_per_node=2", "-t", "3", "--log-dir", logs, script)
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertEqual(len(re.findall("No space left", job.stderr)), 1, job.stderr)
            self.assertIn("[default1]:done 1", job.stdout)
            self.assertEqual(job.stdout.count("\n"), 100_001)
        finally:
            subprocess.run(["umount", logs], check=True)


if __name__ == "__main__":
    unittest.main()
