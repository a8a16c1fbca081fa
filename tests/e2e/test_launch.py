"""Starting programs: environment, arguments, and what is refused before anything starts."""

import json
import os
import pathlib
import resource
import socket
import subprocess
import unittest

from harness import DDLAUNCH, E2eTest

ENV_DUMP = """import json, os, sys
rank = os.environ["RANK"]
with open(os.path.join(sys.argv[1], "env-" + rank), "w") as f:
    json.dump(dict(os.environ), f)
"""


class LaunchTest(E2eTest):
    def worker_environments(self, *flags, nproc=2, env=None):
        script = self.path("dump.py")
        pathlib.Path(script).write_text(ENV_DUMP)
        job = self.launch(f"--nproc_per_node={nproc}", *flags, script, self.dir, env=env)
        self.assertEqual(job.returncode, 0, job.stderr)
        return [json.loads(pathlib.Path(self.path(f"env-{r}")).read_text()) for r in range(nproc)]

    def test_environment_is_torchruns(self):
        stale = {"RANK": "77", "WORLD_SIZE": "99", "LOCAL_RANK": "5", "MASTER_ADDR": "bad.invalid"}
        for rank, env in enumerate(self.worker_environments("--rdzv-id=j7", env=stale)):
            expected = {
                "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2,
                "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "NODE_RANK": 0, "ROLE_NAME": "default",
                "ROLE_RANK": rank, "ROLE_WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1",
                "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
                "TORCHELASTIC_RUN_ID": "j7", "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
            for name, value in expected.items():
                self.assertEqual(env[name], str(value), name)
            self.assertTrue(1024 <= int(env["MASTER_PORT"]) <= 65535)

    def test_plan_reaches_the_environment(self):
        envs = self.worker_environments(
            "--global-batch-size=128", "--max-micro-batch-size=48", "--base-lr=0.1",
            "--base-batch-size=32", "--lr-scaling=linear", "--warmup-steps=5")
        for env in envs:
            self.assertEqual(env["DDL_GLOBAL_BATCH_SIZE"], "128")
            self.assertEqual(env["DDL_MICRO_BATCH_SIZE"], "32")
            self.assertEqual(env["DDL_GRAD_ACCUM_STEPS"], "2")
            self.assertEqual(float(env["DDL_LEARNING_RATE"]), 0.4)
            self.assertEqual(env["DDL_WARMUP_STEPS"], "5")
        self.assertEqual(envs[0]["DDL_PLAN_HASH"], envs[1]["DDL_PLAN_HASH"])

    def test_script_gets_its_arguments_untouched(self):
        script = self.script("args.sh", 'for a in "$@"; do echo "<$a>"; done\n')
        job = self.launch("--nproc_per_node=1", script, "a", "b c", "--nproc-per-node=7", "-m", "-h")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(job.stdout.splitlines(), ["<a>", "<b c>", "<--nproc-per-node=7>", "<-m>", "<-h>"])

    def test_two_workers_are_told_apart_on_the_console(self):
        script = self.script("hello.sh", 'echo "hello $RANK"\n')
        job = self.launch("--nproc_per_node=2", script)
        self.assertEqual(sorted(job.stdout.splitlines()),
                         ["[default0]:hello 0", "[default1]:hello 1"])

    def test_log_files_are_exact(self):
        script = self.script("out.sh", 'printf "out$RANK"; printf "err$RANK" >&2\n')
        job = self.launch("--nproc_per_node=2", "-r", "3", "--log-dir", self.path("logs"), script)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(job.stdout, "")
        files = {str(p.relative_to(self.path("logs"))).split("/", 1)[1]: p.read_text()
                 for p in pathlib.Path(self.path("logs")).rglob("*.log")}
        self.assertEqual(files, {f"attempt_0/{r}/{s}.log": f"{t}{r}" for r in (0, 1)
                                 for s, t in (("stdout", "out"), ("stderr", "err"))})

    def test_stdin_goes_to_local_rank_0_only(self):
        script = self.script("cat.sh", 'echo "$RANK:$(cat)"\n')
        with open(self.path("input"), "w+") as stdin:
            stdin.write("typed")
            stdin.seek(0)
            job = self.launch("--nproc_per_node=2", script, stdin=stdin)
        self.assertEqual(sorted(job.stdout.splitlines()), ["[default0]:0:typed", "[default1]:1:"])

    def refused(self, exit_code, flags, *texts):
        witness = self.path("started")
        script = self.script("witness.sh", f"touch {witness}\n")
        job = self.launch(*flags, script)
        self.assertEqual(job.returncode, exit_code, job.stderr)
        self.assert_one_line_error(job, *texts)
        self.assertFalse(os.path.exists(witness), "a worker was started")

    def test_unknown_flag_names_the_nearest(self):
        self.refused(2, ["--nproc_per_nod=2", "--max-restart=1", "--rdvz-id=3"], "--rdvz-id", "--rdzv-id")

    def test_nproc_out_of_range(self):
        for value in ("0", "-1", "1.5", ""):
            self.refused(2, [f"--nproc-per-node={value}"], "--nproc-per-node", value)

    def test_plan_that_does_not_multiply_out(self):
        self.refused(2, ["--nproc_per_node=4", "--global-batch-size=16", "--micro-batch-size=2",
                         "--grad-accum-steps=1"], "16", "2", "1", "4")

    def test_two_nodes_without_an_endpoint(self):
        self.refused(2, ["--nnodes=2"], "--rdzv-endpoint")

    def test_program_that_is_not_there(self):
        job = self.launch("--nproc_per_node=2", "./no-such-program")
        self.assertEqual(job.returncode, 127)
        self.assert_one_line_error(job, "no-such-program")

    def test_program_that_is_not_executable(self):
        pathlib.Path(self.path("data.txt")).write_text("no program\n")
        job = self.launch("--nproc_per_node=2", "./data.txt")
        self.assertEqual(job.returncode, 126)
        self.assert_one_line_error(job, "data.txt")

    def test_console_that_is_closed_does_not_end_the_job(self):
        witness = self.path("finished")
        script = self.script("spam.sh", f"yes | head -c 300000; touch {witness}\n")
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = subprocess.run([DDLAUNCH, script], env=self.environment({}), stdout=write_end,
                                 stderr=subprocess.PIPE, timeout=60)
        os.close(write_end)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertTrue(os.path.exists(witness))

    def test_slow_reader_of_the_console_loses_nothing(self):
        reader = subprocess.Popen(["/bin/sh", "-c", f"{DDLAUNCH} seq 300000 | (sleep 3; wc -l)"],
                                  env=self.environment({}), stdout=subprocess.PIPE, text=True)
        self.assertEqual(reader.communicate(timeout=60)[0].strip(), "300000")

    def test_closed_standard_streams_are_not_filled_with_ours(self):
        script = self.script("fds.sh", f'readlink /proc/self/fd/0 > {self.path("fd0")}\n')
        subprocess.run(["/bin/sh", "-c", f"{DDLAUNCH} {script} <&- >&- 2>&-"],
                       env=self.environment({}), timeout=60, check=True)
        self.assertEqual(pathlib.Path(self.path("fd0")).read_text().strip(), "/dev/null")

    def test_too_few_descriptors_is_one_clear_line(self):
        limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))
        job = self.launch("--nproc_per_node=2", "/bin/true", preexec_fn=limits)
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, "open files", "10")

    def test_text_that_cannot_be_written_is_an_error(self):
        for words in (["--help"], ["--version"], ["--print-completion=bash"],
                      ["--print-completion=zsh"], ["plan", "--micro-batch-size=3"]):
            with self.subTest(words), open("/dev/full", "w", encoding="utf-8") as full:
                job = subprocess.run([DDLAUNCH, *words], env=self.environment({}), stdout=full,
                                     stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(job.returncode, 1)
                self.assert_one_line_error(job, "standard output", "No space left")

    def test_text_for_a_closed_output_is_an_error(self):
        for words in ("--help", "--version", "--print-completion=bash", "coordinator --help",
                      "plan --help", "plan --micro-batch-size=3", "tune --help"):
            with self.subTest(words):
                job = subprocess.run(["/bin/sh", "-c", f"{DDLAUNCH} {words} >&-"],
                                     env=self.environment({}), stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(job.returncode, 1)
                self.assert_one_line_error(job, "standard output", "Bad file descriptor")

    def test_ports_of_the_workers_count_as_open_files(self):
        nproc = 64
        limit = 400  # enough for 64 workers, with some to spare, but not for their ports too
        count = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
        for soft in (limit, 100):
            with self.subTest(soft):
                limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, limit))
                job = self.launch("--env=jax", f"--nproc-per-node={nproc}", "--no-python",
                                  "/usr/bin/python3", "-c", count, preexec_fn=limits)
                self.assertEqual(job.returncode, 0, job.stderr)
                self.assertEqual(job.stdout.split(":")[-1].strip(), str(soft))
        limits = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (310, 310))
        self.assertEqual(self.launch(f"--nproc-per-node={nproc}", "/bin/true",
                                     preexec_fn=limits).returncode, 0)
        job = self.launch("--env=jax", f"--nproc-per-node={nproc}", "/bin/true", preexec_fn=limits)
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, "64 workers need 368 open files", "310", "ulimit -Hn")

    @unittest.skipIf(os.geteuid() != 0, "needs another user to limit")
    def test_too_few_processes_is_one_clear_line(self):
        nobody = 65534
        def limits():
            os.setgroups([])
            os.setgid(nobody)
            os.setuid(nobody)
            resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
        try:
            job = self.launch("--nproc_per_node=2", "/bin/true", preexec_fn=limits, cwd="/",
                              env={"XDG_RUNTIME_DIR": "", "OMP_NUM_THREADS": "1"})
        except PermissionError:
            self.skipTest("the build tree is closed to other users")
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, "process")

    def test_events_are_json_lines_when_asked_for(self):
        script = self.script("fails.sh", '[ "$RANK" = 0 ] || exit 3\nsleep 600\n')
        job = self.launch("--nproc_per_node=2", "--event-log-handler=console", "--quiet", script)
        self.assertEqual(job.returncode, 3)
        events = [json.loads(line) for line in job.stderr.splitlines() if line.startswith("{")]
        self.assertEqual(
            [(event["source"], event["metadata"]["state"], event["metadata"]["global_rank"])
             for event in events],
            [("AGENT", "RENDEZVOUS", None), ("WORKER", "START", 0), ("WORKER", "START", 1),
             ("WORKER", "FAILED", 1), ("WORKER", "TERMINATED", 0), ("AGENT", "FAILED", None)])
        silent = self.launch("--nproc_per_node=2", script)
        self.assertNotIn("torchelastic", silent.stderr)

    def test_tmpdir_that_is_gone_is_no_reason_to_fail(self):
        job = self.launch("--nproc_per_node=2", "sh", "-c", "echo hi",
                          env={"TMPDIR": "/proc/no-such-place"})
        self.assertEqual((job.returncode, job.stdout.count("hi")), (0, 2), job.stderr)

    def test_unusable_log_dir_is_refused_before_anything_starts(self):
        self.refused(2, ["--log-dir=/proc/no-such-place", "-r", "3"], "--log-dir", "/proc/no-such-place")

    def test_port_held_by_a_stranger_is_an_error_within_seconds(self):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            port = stranger.getsockname()[1]
            job = self.launch("--nnodes=2", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint=127.0.0.1:{port}", "/bin/true")
        self.assertEqual(job.returncode, 1)
        self.assertIn(f"127.0.0.1:{port}", job.stderr)
        self.assertIn("another program", job.stderr)


if __name__ == "__main__":
    unittest.main()
