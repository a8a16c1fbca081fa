"""`ddlaunch coordinator`: many jobs at one place that outlives them, the token
that admits nodes, and its own end."""

import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import unittest

from harness import DDLAUNCH, UNTIL_DONE, E2eTest, free_port, wait_until

SECRET = "s3cret-of-this-test"


class CoordinatorTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.until_done = self.script("until_done.sh", UNTIL_DONE)

    def start_coordinator(self, *flags, listen="127.0.0.1:0", **kwargs):
        coordinator = self.start("coordinator", "--listen", listen, *flags, **kwargs)
        said = wait_until(lambda: re.search(r"listening on (\S+):(\d+)", coordinator.stderr),
                          "the coordinator listens")
        self.endpoint = f"127.0.0.1:{said.group(2)}"
        return coordinator

    def start_node(self, *args, rdzv_id="j", backend="c10d", **kwargs):
        return self.start(f"--rdzv-backend={backend}", f"--rdzv-endpoint={self.endpoint}",
                          f"--rdzv-id={rdzv_id}", *args, **kwargs)

    def stop(self, coordinator):
        coordinator.process.send_signal(signal.SIGTERM)
        self.assertEqual(coordinator.wait().returncode, 0, coordinator.stderr)

    def token_file(self, text=SECRET):
        path = self.path("token")
        pathlib.Path(path).write_text(text + "\n")
        os.chmod(path, 0o600)
        return path

    # ---- jobs -----------------------------------------------------------------

    def test_two_jobs_at_once_and_an_id_used_again(self):
        coordinator = self.start_coordinator()
        jobs = {rdzv_id: [self.start_node("--nnodes=2", self.until_done, self.dir,
                                          f"done-{rdzv_id}", rdzv_id=rdzv_id) for _ in range(2)]
                for rdzv_id in ("x", "y")}
        for rdzv_id in jobs:
            wait_until(lambda: f"job {rdzv_id} has begun" in coordinator.stderr, "it has begun")
        pathlib.Path(self.path("done-x")).touch()
        for job in jobs["x"]:
            self.assertEqual(job.wait().returncode, 0, job.stderr)
        again = [self.start_node("--nnodes=2", "/bin/true", rdzv_id="x") for _ in range(2)]
        for job in again:
            self.assertEqual(job.wait().returncode, 0, job.stderr)
        pathlib.Path(self.path("done-y")).touch()
        for job in jobs["y"]:
            self.assertEqual(job.wait().returncode, 0, job.stderr)
        self.stop(coordinator)
        self.assertEqual(coordinator.stderr.count("job x has begun"), 2, coordinator.stderr)
        self.assertEqual(coordinator.stderr.count("job x has ended with exit code 0"), 2)
        self.assertEqual(coordinator.stderr.count("job y has ended with exit code 0"), 1)

    def test_both_nodes_killed_and_run_again_at_once(self):
        coordinator = self.start_coordinator()
        first = [self.start_node("--nnodes=2", self.until_done, self.dir, "never")
                 for _ in range(2)]
        wait_until(lambda: len(self.marked(WORLD_SIZE="2")) >= 2, "both work")
        for job in first:
            job.process.kill()
        again = [self.start_node("--nnodes=2", "/bin/true") for _ in range(2)]
        for job in again:
            self.assertEqual(job.wait().returncode, 0, job.stderr + coordinator.stderr)
        self.stop(coordinator)

    def test_one_node_job_goes_there_too_and_its_failure_is_logged(self):
        coordinator = self.start_coordinator()
        fail = self.script("fail.sh", "exit 7\n")
        self.assertEqual(self.start_node(fail).wait().returncode, 7)
        self.stop(coordinator)
        self.assertRegex(coordinator.stderr, "job j has ended with exit code 7: rank 0 .* code 7")

    def test_node_zero_of_a_static_job_joins_the_coordinator_of_its_host(self):
        coordinator = self.start_coordinator()
        jobs = [self.start_node("--nnodes=2", f"--node-rank={rank}", "/bin/true",
                                backend="static") for rank in (0, 1)]
        for job in jobs:
            self.assertEqual(job.wait().returncode, 0, job.stderr)
        self.assertIn("job j has ended with exit code 0", coordinator.stderr)

    def test_told_to_host_where_it_listens_is_an_error(self):
        self.start_coordinator()
        job = self.start_node("--rdzv-conf=is_host=1", "/bin/true").wait()
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, "cannot listen on", self.endpoint)

    # ---- the token ------------------------------------------------------------

    def test_token_admits_and_is_shown_nowhere(self):
        token = self.token_file()
        coordinator = self.start_coordinator("-v", f"--rdzv-token-file={token}")
        out = self.script("env.sh", 'env; tr "\\0" "\\n" </proc/$PPID/environ; '
                          'cat /proc/$PPID/cmdline\n')
        by_file = self.start_node("-v", f"--rdzv-token-file={token}", out, rdzv_id="f").wait()
        self.assertEqual(by_file.returncode, 0, by_file.stderr)
        by_env = self.start_node("-v", out, rdzv_id="e", env={"DDL_RDZV_TOKEN": SECRET}).wait()
        self.assertEqual(by_env.returncode, 0, by_env.stderr)
        refused = {}
        for name, env in (("none", {}), ("wrong", {"DDL_RDZV_TOKEN": "wrong"})):
            refused[name] = self.start_node("-v", out, env=env).wait()
            self.assertEqual(refused[name].returncode, 1)
            self.assertIn("give the same --rdzv-token-file as the coordinator",
                          refused[name].stderr)
        self.stop(coordinator)
        self.assertIn(socket.gethostname(), coordinator.stderr)
        self.assertEqual(coordinator.stderr.count("refused: "), 2, coordinator.stderr)
        for job in (coordinator, by_file, by_env, *refused.values()):
            self.assertNotIn(SECRET, job.stdout + job.stderr)
        self.assertNotRegex(by_env.stdout, r"(?m)^DDL_RDZV_TOKEN=.")

    def test_hosting_node_asks_for_its_token(self):
        self.endpoint = f"127.0.0.1:{free_port()}"
        flags = ["--nnodes=2", f"--rdzv-token-file={self.token_file()}"]
        nodes = [self.start_node(*flags, "/bin/true")]
        wait_until(lambda: "1 of 2" in nodes[0].stderr, "it hosts and waits")
        self.assertEqual(self.start_node("--nnodes=2", "/bin/true").wait().returncode, 1)
        nodes.append(self.start_node(*flags, "/bin/true"))
        for job in nodes:
            self.assertEqual(job.wait().returncode, 0, job.stderr)

    def test_open_port_is_warned_of_unless_there_is_a_token(self):
        coordinator = self.start_coordinator(listen=":0")
        wait_until(lambda: "--rdzv-token-file=FILE" in coordinator.stderr, "the warning")
        self.assertIn("every address of this host", coordinator.stderr)
        self.stop(coordinator)
        quiet = self.start_coordinator(f"--rdzv-token-file={self.token_file()}", listen=":0")
        self.stop(quiet)
        self.assertNotIn("anybody", quiet.stderr)

    # ---- its own life ---------------------------------------------------------

    def test_stopped_while_a_job_runs_it_ends_soon_and_the_job_says_why(self):
        coordinator = self.start_coordinator()
        job = self.start_node("--rdzv-conf=heartbeat_timeout=2", self.until_done, self.dir,
                              "never")
        wait_until(lambda: self.marked(WORLD_SIZE="1"), "it works")
        self.stop(coordinator)
        self.assertNotEqual(job.wait().returncode, 0)
        self.assertIn("lost the coordinator", job.stderr)
        self.assert_nothing_left()

    def test_ctrl_c_is_an_end_too(self):
        coordinator = self.start_coordinator()
        coordinator.process.send_signal(signal.SIGINT)
        self.assertEqual(coordinator.wait().returncode, 0)
        self.assertIn("stopped by SIGINT", coordinator.stderr)

    def test_hangup_is_ignored_under_nohup(self):
        coordinator = self.start_coordinator(
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        coordinator.process.send_signal(signal.SIGHUP)
        coordinator.process.send_signal(signal.SIGUSR1)
        self.assertEqual(self.start_node("/bin/true").wait().returncode, 0)
        self.stop(coordinator)
        self.assertNotIn("SIGHUP", coordinator.stderr)

    def test_reader_of_the_log_that_pauses_stops_no_job(self):
        read_end, write_end = os.pipe()
        try:
            os.set_blocking(write_end, False)
            try:
                while True:
                    os.write(write_end, b"x" * 4096)
            except BlockingIOError:
                pass
            os.set_blocking(write_end, True)
            self.endpoint = f"127.0.0.1:{free_port()}"
            process = subprocess.Popen(
                [DDLAUNCH, "coordinator", "-v", "--listen", self.endpoint],
                env=self.environment({}), stderr=write_end, stdin=subprocess.DEVNULL)
            try:
                job = self.start_node("--rdzv-conf=is_host=0", "/bin/true").wait()
                self.assertEqual(job.returncode, 0, job.stderr)
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(20), 0)
            finally:
                process.kill()
                process.wait()
        finally:
            os.close(read_end)
            os.close(write_end)

    def test_more_connections_than_descriptors_harm_it_only_while_they_last(self):
        limit = 64
        coordinator = self.start_coordinator(
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        host, port = self.endpoint.split(":")
        strangers = [socket.create_connection((host, int(port))) for _ in range(2 * limit)]
        wait_until(lambda: "connections are sent away" in coordinator.stderr, "it says so")
        for stranger in strangers:
            stranger.close()
        job = self.start_node("--rdzv-conf=is_host=0", "/bin/true").wait()
        self.assertEqual(job.returncode, 0, job.stderr)
        self.stop(coordinator)

    def test_port_that_is_taken_is_named(self):
        self.start_coordinator()
        other = self.launch("coordinator", "--listen", self.endpoint)
        self.assertEqual(other.returncode, 1)
        self.assert_one_line_error(other, self.endpoint)

    def test_wrong_requests_are_usage_errors(self):
        for flags, text in ((["--listen=x:y"], "--listen=x:y"), (["--nnodes=2"], "--nnodes"),
                            (["train.py"], "train.py"), (["--rdzv-conf=rank=1"], "rank"),
                            (["--rdzv-token-file=/no/such"], "/no/such")):
            job = self.launch("coordinator", *flags)
            self.assertEqual(job.returncode, 2, job.stderr)
            self.assert_one_line_error(job, text)


if __name__ == "__main__":
    unittest.main()
