"""Which samples each step consumed, and what it lost: the same, whatever happens to
the job. The sampler's order and the losses are compared with an undisturbed run."""

import collections
import json
import os
import pathlib
import re
import signal
import unittest

from harness import TRAIN_BIN, E2eTest, free_port, wait_until

SAMPLES = 1437  # training images
GLOBAL = 32
STEPS_PER_EPOCH = -(-SAMPLES // GLOBAL)


class AuditTest(E2eTest):
    def outputs(self, name):
        return ["--metrics-out", self.path(name + ".jsonl"), "--audit-dir", self.path(name)]

    def lines(self, path):
        try:
            return pathlib.Path(path).read_text().splitlines()
        except FileNotFoundError:
            return []

    def steps_done(self, name):
        return len(self.lines(self.path(name + ".jsonl")))

    def metrics(self, name):
        rows = [json.loads(line) for line in self.lines(self.path(name + ".jsonl"))]
        return [row for row in rows if "final" not in row], rows[-1]

    def audit(self, name):
        """For each step its (epoch, sample ids, world size), as its last round made it."""
        steps = collections.defaultdict(dict)
        for path in pathlib.Path(self.path(name)).glob("rank-*.jsonl"):
            for row in map(json.loads, path.read_text().splitlines()):
                steps[row["step"]].setdefault(row["round"], []).append(row)
        last = {step: rounds[max(rounds)] for step, rounds in steps.items()}
        return {step: (rows[0]["epoch"], [i for row in rows for i in row["ids"]], len(rows))
                for step, rows in last.items()}

    def assert_each_sample_once(self, name, epochs, steps=STEPS_PER_EPOCH):
        audit = self.audit(name)
        self.assertEqual(sorted(audit), list(range(1, epochs * steps + 1)))
        seen = collections.defaultdict(list)
        for epoch, ids, _ in audit.values():
            seen[epoch] += ids
        self.assertEqual(sorted(seen), list(range(epochs)))
        for epoch, ids in seen.items():
            self.assertEqual(sorted(ids), list(range(SAMPLES)), f"epoch {epoch}")

    def assert_same_training(self, name, other):
        (rows, final), (expected, expected_final) = self.metrics(name), self.metrics(other)
        self.assertEqual([r["step"] for r in rows], [r["step"] for r in expected])
        for row, as_before in zip(rows, expected):
            self.assertAlmostEqual(row["loss"], as_before["loss"],
                                   delta=2e-3 * max(1, as_before["loss"]), msg=str(row))
            self.assertEqual((row["lr"], row["samples"]), (as_before["lr"], as_before["samples"]))
        self.assertAlmostEqual(final["accuracy"], expected_final["accuracy"], delta=0.01)
        return final

    def calm(self, *args):
        job = self.launch("--nproc-per-node=4", TRAIN_BIN, *self.outputs("calm"), *args)
        self.assertEqual(job.returncode, 0, job.stderr)

    # ---- worlds that do not divide the batch ----------------------------------

    def test_exact_policy_on_three_and_five_workers_has_the_losses_of_four(self):
        self.calm("--epochs=3")
        for world in (3, 5):
            for flags in ([], [f"--global-batch-size={GLOBAL}", "--batch-policy=exact",
                               "--max-micro-batch-size=4"]):
                name = f"{world}-{len(flags)}"
                job = self.launch(f"--nproc-per-node={world}", *flags, TRAIN_BIN, "--epochs=3",
                                  *self.outputs(name))
                self.assertEqual(job.returncode, 0, job.stderr)
                self.assert_same_training(name, "calm")
                self.assert_each_sample_once(name, 3)

    # ---- out of memory --------------------------------------------------------

    def test_out_of_memory_in_mid_training_changes_neither_samples_nor_losses(self):
        self.calm("--epochs=2")
        # 3 samples fit: 8, 4, 2, twice in one step; on one rank, or on all at once.
        for name, where in (("one", ["--oom-rank=2"]), ("all", [])):
            job = self.launch("--nproc-per-node=4", TRAIN_BIN, "--epochs=2", "--oom-above=3",
                              "--oom-at-step=20", *where, *self.outputs(name))
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertEqual(self.assert_same_training(name, "calm")["restart_count"], 0)
            self.assert_each_sample_once(name, 2)
            self.assertIn("micro-batch 8 -> 4", job.stderr)
            self.assertIn("micro-batch 4 -> 2", job.stderr)

    def test_out_of_memory_with_a_share_that_cannot_be_halved_is_split_unevenly(self):
        steps = -(-SAMPLES // 31)
        job = self.launch("--global-batch-size=31", TRAIN_BIN, "--epochs=1",
                          *self.outputs("calm-31"))
        self.assertEqual(job.returncode, 0, job.stderr)
        # A step of 31 samples, of which a device holds 16: not one at a time.
        job = self.launch("--nproc-per-node=1", "--global-batch-size=31", TRAIN_BIN, "--epochs=1",
                          "--oom-above=16", "--oom-at-step=5", *self.outputs("split-31"))
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.assert_same_training("split-31", "calm-31")["restart_count"], 0)
        self.assert_each_sample_once("split-31", 1, steps)
        (smaller,) = re.findall(r"from that step on: micro-batch 31 -> up to (\d+)", job.stderr)
        self.assertIn(int(smaller), range(10, 17), job.stderr)

    def test_out_of_memory_at_the_floor_ends_the_job_with_the_reason(self):
        job = self.launch("--nproc-per-node=4", "--min-micro-batch-size=4", TRAIN_BIN,
                          "--oom-above=2", "--oom-rank=1", "--oom-at-step=5")
        self.assertEqual(job.returncode, 1, job.stderr)
        cause = job.stderr[job.stderr.index("Root Cause"):]
        self.assertRegex(cause, r"rank\s*:\s*1 ")
        self.assertIn("--min-micro-batch-size=4", cause)

    def is_stopped(self, pid):
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return stat[stat.rindex(")") + 2] == "T"

    def start_with_a_stopped_rank(self, *flags):
        """Two steps of 720 samples. Rank 3 stops itself before step 1, and rank 2 runs
        out of memory in it: they cannot agree without it."""
        job = self.start("--nproc-per-node=4", "--global-batch-size=720", *flags, TRAIN_BIN,
                         "--epochs=1", "--stop-rank=3", "--oom-above=100", "--oom-rank=2",
                         "--oom-at-step=1", *self.outputs("slow"))
        wait_until(lambda: "ran out of device memory" in job.stderr, "rank 2 has reported")
        (rank_3,) = self.marked(RANK=3)
        wait_until(lambda: self.is_stopped(rank_3), "rank 3 has stopped")
        return job, rank_3

    def test_rank_that_is_much_slower_is_waited_for(self):
        job, rank_3 = self.start_with_a_stopped_rank()
        os.kill(rank_3, signal.SIGCONT)
        self.assertEqual(job.wait().returncode, 0, job.stderr)
        self.assertEqual(self.metrics("slow")[1]["restart_count"], 0)
        self.assert_each_sample_once("slow", 1, steps=2)

    def test_rank_killed_during_the_agreement_is_an_ordinary_failure(self):
        job, rank_3 = self.start_with_a_stopped_rank("--max-restarts=1")
        os.kill(rank_3, signal.SIGKILL)
        self.assertEqual(job.wait().returncode, 0, job.stderr)
        self.assertIn("rank 3 (local rank 3)", job.stderr)
        self.assertEqual(self.metrics("slow")[1]["restart_count"], 1)
        self.assert_each_sample_once("slow", 1, steps=2)

    # ---- everything at once ---------------------------------------------------

    def start_node(self, args):
        return self.start("--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-id=j",
                          f"--rdzv-endpoint=127.0.0.1:{self.port}", "--max-restarts=1",
                          "--rdzv-conf=join_timeout=40,last_call_timeout=1",
                          "--shutdown-timeout=10", TRAIN_BIN, *args)

    def test_scaled_out_of_memory_and_killed_consumes_each_sample_once(self):
        epochs = 8
        self.calm(f"--epochs={epochs}")
        args = [f"--epochs={epochs}", "--checkpoint-dir", self.path("ckpt"),
                "--checkpoint-every=10", "--step-delay-ms=25", "--oom-above=4", "--oom-rank=1",
                "--oom-at-step=25", *self.outputs("run")]
        self.port = free_port()
        host = self.start_node(args)
        wait_until(lambda: "1 of " in host.stderr, "the first node waits for more")
        others = [self.start_node(args) for _ in range(3)]

        def wait_for_steps(more):
            seen = self.steps_done("run")
            wait_until(lambda: self.steps_done("run") >= seen + more, f"{more} steps more")

        wait_until(lambda: "world size 4" in host.stderr, "four workers")
        wait_until(lambda: "ran out of device memory" in host.stderr, "step 25 is done again")
        wait_for_steps(15)
        for node in others[1:]:
            node.process.send_signal(signal.SIGTERM)
        for node in others[1:]:
            self.assertEqual(node.wait().returncode, 128 + signal.SIGTERM, node.stderr)
        wait_until(lambda: re.search(r"2 nodes, world size 2 ", host.stderr), "two workers")
        wait_for_steps(25)
        others[1:] = [self.start_node(args)]
        wait_until(lambda: "world size 3 (was 2)" in host.stderr, "three workers")
        wait_for_steps(25)
        (victim,) = self.marked(RANK=2)
        os.kill(victim, signal.SIGKILL)
        said = "\n----\n".join(node.wait().stderr for node in [host, *others])
        self.assertEqual([node.returncode for node in [host, *others]], [0, 0, 0], said)

        final = self.assert_same_training("run", "calm")
        self.assertEqual(final["restart_count"], 1)
        self.assertEqual(final["world"], 3)
        self.assert_each_sample_once("run", epochs)
        worlds = [world for _, _, world in self.audit("run").values()]
        self.assertLessEqual({2, 3, 4}, set(worlds))
        # The lesson holds in later rounds: nothing above 4 was tried again.
        self.assertEqual(host.stderr.count("ran out of device memory"), 1, host.stderr)


if __name__ == "__main__":
    unittest.main()
