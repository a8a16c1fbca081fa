"""train_bin on the real digits: the numbers are the same however the work is split."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import unittest

from harness import BIN_DIR, TRAIN_BIN, E2eTest, free_port, wait_until


class TrainTest(E2eTest):
    def read_metrics(self, path):
        return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]

    def read_weights(self, path):
        data = pathlib.Path(path).read_bytes()
        return struct.unpack(f"{len(data) // 4}f", data)

    def outputs(self, name):
        metrics, weights = self.path(name + ".jsonl"), self.path(name + ".weights")
        return metrics, weights, ["--metrics-out", metrics, "--weights-out", weights]

    def train(self, name, nproc, flags=(), args=("--epochs=3",)):
        metrics, weights, out = self.outputs(name)
        job = self.launch(f"--nproc_per_node={nproc}", *flags, TRAIN_BIN, *args, *out)
        self.assertEqual(job.returncode, 0, job.stderr)
        return self.read_metrics(metrics), self.read_weights(weights)

    def assert_same_training(self, one, other):
        (metrics_a, weights_a), (metrics_b, weights_b) = one, other
        steps_a = [m for m in metrics_a if "final" not in m]
        steps_b = [m for m in metrics_b if "final" not in m]
        self.assertEqual([m["step"] for m in steps_a], [m["step"] for m in steps_b])
        self.assertGreater(len(steps_a), 100)
        for a, b in zip(steps_a, steps_b):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=2e-3 * max(1, a["loss"]), msg=str(a))
            self.assertEqual(a["lr"], b["lr"])
            self.assertEqual(a["samples"], b["samples"])
        self.assertEqual(len(weights_a), len(weights_b))
        worst = max(abs(a - b) for a, b in zip(weights_a, weights_b))
        self.assertLess(worst, 5e-3)

    def test_main_job_reaches_95_percent(self):
        metrics, _ = self.train("main", 4, args=())
        final = metrics[-1]
        self.assertTrue(final["final"])
        self.assertGreaterEqual(final["accuracy"], 0.95)
        self.assertEqual(final["world"], 4)

    def test_world_and_accumulation_do_not_change_the_training(self):
        batch = "--global-batch-size=32"
        reference = self.train("w1", 1, [batch])
        self.assert_same_training(reference, self.train("w1a4", 1, [batch, "--max-micro-batch-size=8"]))
        self.assert_same_training(reference, self.train("w2", 2, [batch]))
        self.assert_same_training(reference, self.train("w2a4", 2, [batch, "--micro-batch-size=4"]))
        self.assert_same_training(reference, self.train("w4", 4, [batch]))
        self.assert_same_training(reference, self.train("w4a4", 4, [batch, "--grad-accum-steps=4"]))

    def test_two_nodes_train_as_one_job(self):
        reference = self.train("one", 4)
        endpoint = f"127.0.0.1:{free_port()}"
        metrics, weights, out = self.outputs("two")
        jobs = [self.start("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                           "--rdzv-id=j", "--nproc_per_node=2", TRAIN_BIN, "--epochs=3", *out)
                for _ in range(2)]
        self.assertEqual([job.wait().returncode for job in jobs], [0, 0],
                         jobs[0].stderr + jobs[1].stderr)
        self.assert_same_training(reference, (self.read_metrics(metrics), self.read_weights(weights)))

    def test_kill_9_of_a_worker_costs_nothing_beyond_the_last_checkpoint(self):
        reference = self.train("calm", 4)
        metrics, weights, out = self.outputs("killed")
        job = self.start("--nproc_per_node=4", "--max-restarts=1", TRAIN_BIN, "--epochs=3",
                         "--checkpoint-dir", self.path("ckpt"), "--checkpoint-every=10",
                         "--step-delay-ms=10", *out)
        wait_until(lambda: os.path.exists(metrics) and
                   len(pathlib.Path(metrics).read_text().splitlines()) >= 60, "step 60")
        (victim,) = self.marked(RANK=2)
        os.kill(victim, signal.SIGKILL)
        self.assertEqual(job.wait().returncode, 0, job.stderr)
        after = self.read_metrics(metrics)
        self.assertEqual(after[-1]["restart_count"], 1)
        self.assertEqual(after[-1]["accuracy"], reference[0][-1]["accuracy"])
        # Steps after the checkpoint are done again: the last word on each holds.
        by_step = {m["step"]: m for m in after if "final" not in m}
        repeated = len([m for m in after if "final" not in m]) - len(by_step)
        self.assertLessEqual(repeated, 10 + 1)
        merged = [by_step[step] for step in sorted(by_step)]
        self.assert_same_training(reference, (merged, self.read_weights(weights)))
        for rank in range(4):
            self.assertRegex(job.stdout + job.stderr, rf"(?i)rank {rank}.*restart.* 1")

    def test_data_file_that_is_not_there_is_named(self):
        job = self.launch("--nproc_per_node=2", TRAIN_BIN, "--data", "/no/such/digits.csv")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("/no/such/digits.csv", job.stderr)

    def test_rank_that_failed_is_the_root_cause_not_its_peers(self):
        for _ in range(5):
            nowhere = self.path("nobody-made-this/x")
            job = self.launch("--nproc_per_node=4", TRAIN_BIN, "--metrics-out", nowhere)
            self.assertEqual(job.returncode, 1, job.stderr)
            cause = job.stderr[job.stderr.index("Root Cause"):]
            self.assertRegex(cause, r"rank\s*:\s*0 ")
            self.assertIn(nowhere, cause)

    def test_rank_that_leaves_with_0_in_mid_work_fails_the_job_by_name(self):
        job = self.start("--nproc_per_node=2", str(BIN_DIR / "leaving_rank"), self.path("up-"))
        wait_until(lambda: os.path.exists(self.path("up-0")) and os.path.exists(self.path("up-1")),
                   "both ranks have summed once")
        (leaver,) = self.marked(RANK=1)
        os.kill(leaver, signal.SIGTERM)
        self.assertEqual(job.wait().returncode, 1, job.stderr)
        self.assertIn("rank 1 (local rank 1) on host", job.stderr)
        self.assertIn("left its peers waiting", job.stderr)
        self.assertRegex(job.stderr, r"rank\s*:\s*1 ")

    def test_program_alone_is_a_world_of_one(self):
        metrics, weights, out = self.outputs("alone")
        subprocess.run([TRAIN_BIN, "--epochs=3", *out], env=self.environment({}), check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
        self.assert_same_training(self.train("launched", 1),
                                  (self.read_metrics(metrics), self.read_weights(weights)))


if __name__ == "__main__":
    unittest.main()
