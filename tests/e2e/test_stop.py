"""Stopping: Ctrl-C, SIGTERM, kill -9, and what workers left behind."""

import os
import pathlib
import signal
import unittest

from harness import E2eTest, wait_until

# Each worker says it runs by a file; a child of its own and one that made
# itself a session leader stay behind unless somebody ends them.
TREE = """
sleep 600 &
setsid sleep 600 &
touch "$1/up-$RANK"
wait
"""


class StopTest(E2eTest):
    def started(self, *flags, body=TREE, nproc=2, **kwargs):
        script = self.script("tree.sh", body)
        job = self.start(f"--nproc_per_node={nproc}", *flags, script, self.dir, **kwargs)
        for rank in range(nproc):
            wait_until(lambda: os.path.exists(self.path(f"up-{rank}")), f"rank {rank} is up")
        return job

    def test_ctrl_c_is_130_and_all_are_gone(self):
        job = self.started()
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait().returncode, 130, job.stderr)
        self.assert_nothing_left()

    def test_sigterm_is_143_and_all_are_gone(self):
        job = self.started()
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143, job.stderr)
        self.assert_nothing_left()

    def test_second_ctrl_c_kills_at_once(self):
        stubborn = "trap '' INT TERM\n" + 'touch "$1/up-$RANK"\nwhile :; do sleep 1; done\n'
        job = self.started(body=stubborn)
        job.process.send_signal(signal.SIGINT)
        wait_until(lambda: "SIGINT" in job.stderr, "the first is acknowledged")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(timeout_s=20).returncode, 130, job.stderr)
        self.assert_nothing_left()

    def test_hangup_that_comes_twice_still_leaves_the_grace(self):
        # As of a terminal that is closed: the kernel's and then the shell's.
        saver = ("trap 'until [ -e \"$1/go\" ]; do sleep 0.05; done; touch \"$1/saved-$RANK\"; exit' TERM\n"
                 'touch "$1/up-$RANK"\nwhile :; do sleep 0.05; done\n')
        default = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
        job = self.started(body=saver, preexec_fn=default)
        job.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP" in job.stderr, "the first is acknowledged")
        job.process.send_signal(signal.SIGHUP)
        pathlib.Path(self.path("go")).touch()
        self.assertEqual(job.wait().returncode, 129, job.stderr)
        for rank in range(2):
            self.assertTrue(os.path.exists(self.path(f"saved-{rank}")), job.stderr)

    def test_worker_that_ignores_term_is_killed_after_the_timeout(self):
        stubborn = "trap '' TERM\n" + 'touch "$1/up-$RANK"\nwhile :; do sleep 1; done\n'
        job = self.started("--shutdown-timeout=0.5", body=stubborn)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(timeout_s=25).returncode, 143, job.stderr)
        self.assert_nothing_left()

    def test_worker_that_is_stopped_hears_of_the_stop_at_once(self):
        body = ("trap 'touch $1/heard; exit 0' TERM\n"
                '[ "$RANK" = 1 ] || { echo $$ > $1/pid; kill -STOP $$; sleep 600 & wait; }\n'
                "until [ -e $1/fail ]; do sleep 0.05; done; exit 3\n")
        job = self.start("--nproc_per_node=2", "--shutdown-timeout=600",
                         self.script("stopped.sh", body), self.dir)
        pid = pathlib.Path(self.path("pid"))
        wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), "rank 0 is up")
        stat = pathlib.Path(f"/proc/{pid.read_text().strip()}/stat")
        wait_until(lambda: stat.read_text().rsplit(")")[1].split()[0] == "T", "it is stopped")
        self.be_done("fail")
        self.assertEqual(job.wait().returncode, 3, job.stderr)
        self.assertTrue(os.path.exists(self.path("heard")), job.stderr)

    def test_kill_9_of_the_supervisor_leaves_no_directory(self):
        os.mkdir(self.path("tmp"))
        job = self.start("--nproc_per_node=1", self.script("up.sh", 'echo $PPID > "$1"; sleep 600\n'),
                         self.path("parent"), env={"TMPDIR": self.path("tmp")})
        parent = pathlib.Path(self.path("parent"))
        wait_until(lambda: parent.exists() and parent.read_text().endswith("\n"), "it is up")
        self.assertNotEqual(int(parent.read_text()), job.process.pid)
        os.kill(int(parent.read_text()), signal.SIGKILL)
        self.assertEqual(job.wait().returncode, 1, job.stderr)
        self.assertEqual(os.listdir(self.path("tmp")), [])

    def test_save_within_the_grace_completes(self):
        saver = ("trap 'sleep 1; touch \"$1/saved-$RANK\"; exit 0' TERM\n"
                 'touch "$1/up-$RANK"\nwhile :; do sleep 0.05; done\n')
        job = self.started(body=saver)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143, job.stderr)
        self.assertTrue(os.path.exists(self.path("saved-0")))
        self.assertTrue(os.path.exists(self.path("saved-1")))

    def test_kill_9_of_ddlaunch_leaves_nothing(self):
        job = self.started(nproc=4)
        gateway = {v for pid in self.marked(RANK=0) for v in
                   pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                   if v.startswith("DDL_GATEWAY=unix:")}
        job.process.kill()
        job.wait()
        self.assert_nothing_left(timeout_s=5)
        for line in gateway:
            directory = os.path.dirname(line.removeprefix("DDL_GATEWAY=unix:"))
            wait_until(lambda: not os.path.exists(directory), f"{directory} is removed")

    def test_kill_9_during_the_spawn_leaves_nothing(self):
        for nproc in (16, 32):
            script = self.script("sleep.sh", 'touch "$1/any"\nexec sleep 600\n')
            job = self.start(f"--nproc_per_node={nproc}", script, self.dir)
            wait_until(lambda: os.path.exists(self.path("any")), "a first worker is up")
            job.process.kill()
            job.wait()
            self.assert_nothing_left(timeout_s=5)
            os.unlink(self.path("any"))

    def test_background_children_do_not_outlive_a_job_that_succeeded(self):
        job = self.launch("--nproc_per_node=2", self.script(
            "bg.sh", "sleep 600 & setsid sleep 600 & exit 0\n"))
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assert_nothing_left()

    def test_children_that_ignore_term_do_not_outlive_the_grace(self):
        deaf = ("sh -c \"trap '' TERM; while :; do sleep 1; done\" &\n"
                "setsid sh -c \"trap '' TERM; while :; do sleep 1; done\" &\n"
                'touch "$1/up-$RANK"\nwait\n')
        job = self.started("--shutdown-timeout=0.5", body=deaf)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143, job.stderr)
        self.assert_nothing_left()

    def test_term_goes_to_the_worker_whose_children_serve_its_last_save(self):
        # The child that loads data dies of TERM, as most do; the worker needs it once more.
        saver = ("mkfifo \"$1/ask-$RANK\"\n"
                 "(read question < \"$1/ask-$RANK\"; touch \"$1/loaded-$RANK\") & loader=$!\n"
                 "trap 'echo more > \"$1/ask-$RANK\"; wait $loader; touch \"$1/saved-$RANK\"; exit' TERM\n"
                 'touch "$1/up-$RANK"\nwhile :; do sleep 0.05; done\n')
        job = self.started(body=saver)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143, job.stderr)
        for rank in range(2):
            self.assertTrue(os.path.exists(self.path(f"loaded-{rank}")))
            self.assertTrue(os.path.exists(self.path(f"saved-{rank}")))

    def test_sigusr1_is_passed_on(self):
        body = ("trap 'touch \"$1/usr1-$RANK\"; exit 0' USR1\n"
                'touch "$1/up-$RANK"\nwhile :; do sleep 0.05; done\n')
        job = self.started(body=body)
        job.process.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait().returncode, 0, job.stderr)
        self.assertTrue(os.path.exists(self.path("usr1-0")) and os.path.exists(self.path("usr1-1")))

    def test_signals_to_handle_stop_and_the_others_are_passed_on(self):
        body = ("trap 'touch \"$1/int-$RANK\"' INT\n"
                'touch "$1/up-$RANK"\nwhile :; do sleep 0.05; done\n')
        job = self.started("--signals-to-handle=SIGTERM,SIGUSR1", body=body)
        job.process.send_signal(signal.SIGINT)
        for rank in range(2):
            wait_until(lambda: os.path.exists(self.path(f"int-{rank}")), f"rank {rank} got it")
        job.process.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait().returncode, 128 + signal.SIGUSR1, job.stderr)
        self.assert_nothing_left()

    def test_a_cpu_limit_and_a_power_failure_are_passed_on(self):
        for name in ("SIGXCPU", "SIGPWR"):
            body = f"trap 'exit 7' {name[3:]}\n" + (
                'touch "$1/up-$RANK"\nwhile :; do sleep 0.05; done\n')
            job = self.started(body=body)
            job.process.send_signal(getattr(signal, name))
            self.assertEqual(job.wait().returncode, 7, job.stderr)
            for rank in range(2):
                os.unlink(self.path(f"up-{rank}"))

    def test_hangup_is_ignored_under_nohup_and_stops_otherwise(self):
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        job = self.started(preexec_fn=ignore)
        job.process.send_signal(signal.SIGHUP)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 143, "the hangup was not ignored: " + job.stderr)
        for name in ("up-0", "up-1"):
            os.unlink(self.path(name))
        default = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
        job = self.started(preexec_fn=default)
        job.process.send_signal(signal.SIGHUP)
        self.assertEqual(job.wait().returncode, 129, job.stderr)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
