"""A standing coordinator and its agents: killed, frozen, and back again."""

import pathlib
import re
import signal
import unittest

from harness import UNTIL_DONE, E2eTest, wait_until


class RecoveryTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.program = self.script("until_done.sh", UNTIL_DONE)
        self.coordinator = self.start_coordinator("127.0.0.1:0")
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.coordinator.stderr)[1])

    def start_coordinator(self, address):
        coordinator = self.start("coordinator", "--listen", address,
                                 "--rdzv-conf=heartbeat_timeout=3", "-v")
        wait_until(lambda: "listening on" in coordinator.stderr or
                   coordinator.process.poll() is not None, "the coordinator listens")
        self.assertIsNone(coordinator.process.poll(), coordinator.stderr)
        return coordinator

    def start_agent(self, nnodes=2, *flags, rdzv_id="j", program=None, join_timeout=40):
        return self.start(f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-id={rdzv_id}",
                          f"--rdzv-endpoint=127.0.0.1:{self.port}", "--shutdown-timeout=10",
                          f"--rdzv-conf=is_host=0,join_timeout={join_timeout}", *flags,
                          program or self.program, self.dir, f"done-{rdzv_id}")

    def assert_success(self, jobs):
        self.assertEqual([job.wait().returncode for job in jobs], [0] * len(jobs), self.said())

    def wait_for_fresh_round(self):
        try:
            wait_until(lambda: len(self.told()) >= 4, "a fresh round")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.said()}") from None

    # ---- agents ----------------------------------------------------------------

    def test_all_agents_killed_and_rerun_at_once(self):
        jobs = [self.start_agent(), self.start_agent()]
        self.wait_for_world(2)
        for job in jobs:
            job.process.kill()
        jobs = [self.start_agent(), self.start_agent()]
        self.wait_for_fresh_round()
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual(len(self.told()), 4)
        self.assertEqual({one.restarts for one in self.told()}, {0})

    def test_three_agents_killed_one_after_another_and_restarted_at_once(self):
        program = self.script("port.sh", """
echo "$MASTER_PORT" >> "$1/ports"
""" + UNTIL_DONE)
        jobs = [self.start_agent(3, program=program) for _ in range(3)]
        first = self.wait_for_world(3)
        for number in range(3):
            jobs[number].process.kill()
            jobs[number] = self.start_agent(3, program=program)
        self.wait_for_world(3, later_than=first)
        self.be_done("done-j")
        self.assert_success(jobs)
        # One new round of three.
        self.assertEqual(len(self.told()), 6, self.told())
        with open(self.path("ports"), encoding="ascii") as file:
            ports = file.read().split()
        self.assertEqual([len(set(ports[:3])), len(set(ports[3:])), len(set(ports))], [1, 1, 2])

    def test_ids_that_differ_each_is_told_of_the_other(self):
        jobs = [self.start_agent(rdzv_id=name, join_timeout=2) for name in ("red", "blue")]
        for job, other in zip(jobs, ("blue", "red")):
            self.assertNotEqual(job.wait().returncode, 0)
            self.assertIn("1 of 2", job.stderr)
            self.assertIn(other, job.stderr)

    # ---- the coordinator -------------------------------------------------------

    def test_killed_and_started_again_the_job_goes_on(self):
        jobs = [self.start_agent(), self.start_agent()]
        first = self.wait_for_world(2)
        self.coordinator.process.kill()
        self.coordinator.wait()
        self.start_coordinator(f"127.0.0.1:{self.port}")
        self.wait_for_world(2, later_than=first)
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual({one.restarts for one in self.told()}, {0})

    def test_killed_with_a_node_the_global_batch_and_the_rate_are_held(self):
        program = self.script("plan.sh", """
echo "$DDL_ROUND $DDL_GLOBAL_BATCH_SIZE $DDL_MICRO_BATCH_SIZE $DDL_GRAD_ACCUM_STEPS \
$DDL_LEARNING_RATE $DDL_WARMUP_SAMPLES" >> "$1/plans"
""" + UNTIL_DONE)
        flags = ("--nproc-per-node=2", "--micro-batch-size=8", "--lr-scaling=linear",
                 "--base-lr=0.1", "--base-batch-size=32", "--warmup-steps=10")
        jobs = [self.start_agent("1:2", *flags, program=program) for _ in range(2)]
        first = self.wait_for_world(4)
        self.coordinator.process.kill()
        self.coordinator.wait()
        jobs.pop().process.kill()
        self.start_coordinator(f"127.0.0.1:{self.port}")
        second = self.wait_for_world(2, later_than=first)
        self.be_done("done-j")
        self.assert_success(jobs)
        plans = pathlib.Path(self.path("plans")).read_text().splitlines()
        self.assertEqual(set(plans),
                         {f"{first} 32 8 1 0.1 320", f"{second} 32 8 2 0.1 320"})
        self.assertIn("accumulation 1 -> 2; global batch 32", jobs[0].stderr)

    def test_killed_and_gone_agents_stop_their_workers_and_say_why(self):
        jobs = [self.start_agent(), self.start_agent()]
        self.wait_for_world(2)
        self.coordinator.process.kill()
        for job in jobs:
            self.assertNotEqual(job.wait().returncode, 0)
            self.assertIn("lost the coordinator", job.stderr)
        self.assert_nothing_left()

    def test_frozen_for_long_agents_stop_and_it_serves_again_when_it_goes_on(self):
        jobs = [self.start_agent(), self.start_agent()]
        self.wait_for_world(2)
        self.coordinator.process.send_signal(signal.SIGSTOP)
        for job in jobs:
            self.assertNotEqual(job.wait().returncode, 0)
        self.assertEqual(self.marked(RANK=0) + self.marked(RANK=1), [])
        self.coordinator.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "job j has ended" in self.coordinator.stderr, "it notices the loss")
        jobs = [self.start_agent(), self.start_agent()]
        self.wait_for_fresh_round()
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual(len(self.told()), 4)


if __name__ == "__main__":
    unittest.main()
