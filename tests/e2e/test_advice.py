"""Advice at run time: real workers over Gloo, in the ways that deserve it. Each line
comes once, from rank 0, with its number; training is the same with it and without."""

import pathlib
import unittest

from harness import BIN_DIR, E2eTest

PROBE = BIN_DIR / "advice_probe"
# What a busy machine can make true of any trial: it says nothing of the fault. (On an
# idle one the probe's own work is under the millisecond that the line needs.)
WAITING = "scaling efficiency"


class AdviceTest(E2eTest):
    def probe(self, mode, nproc=2, *arguments, flags=()):
        weights = self.path("weights-" + "-".join((mode, *arguments)))
        job = self.launch(f"--nproc_per_node={nproc}", *flags, PROBE, mode, weights, *arguments)
        self.assertEqual(job.returncode, 0, job.stderr)
        lines = [line.split("ddl: advice: ", 1)[1] for line in job.stderr.splitlines()
                 if "ddl: advice: " in line]
        self.assertEqual(len(lines), len(set(lines)), "each line once")
        advice = [line for line in lines if not line.startswith(WAITING)]
        return job, advice, pathlib.Path(weights).read_text()

    def test_two_ranks_of_the_same_samples_are_named(self):
        _, advice, _ = self.probe("same")
        self.assertEqual(len(advice), 1, advice)
        self.assertIn("rank 0 and rank 1 read the same samples: all of the first 8", advice[0])

    def test_ranks_in_different_epochs_are_named(self):
        _, advice, _ = self.probe("epochs")
        self.assertEqual(len(advice), 1, advice)
        self.assertIn("rank 1 is in epoch 0, rank 0 in epoch 1", advice[0])
        self.assertIn("StartEpoch", advice[0])

    def test_an_epoch_in_the_order_of_the_last_is_noticed(self):
        _, advice, _ = self.probe("order")
        self.assertEqual(len(advice), 1, advice)
        self.assertIn("began with the same samples in the same order", advice[0])
        self.assertIn("set_epoch", advice[0])

    def test_unequal_batches_are_joined_and_the_short_ranks_named(self):
        job, advice, _ = self.probe("unequal", 3)
        # 3, 4 and 5 batches of two samples: five steps on each rank, all 24 samples.
        for rank in range(3):
            self.assertIn(f"rank {rank}: 5 steps, 24 samples", job.stdout)
        self.assertEqual(len(advice), 1, advice)
        self.assertIn("rank 0 of 3 has no more batches while others have", advice[0])

    def test_a_parameter_unused_on_one_rank_is_named_and_nothing_hangs(self):
        job, advice, _ = self.probe("unused")
        self.assertIn("rank 0: 60 steps, 960 samples", job.stdout)
        self.assertEqual(len(advice), 1, advice)
        self.assertIn('parameter "bias" got no gradient on rank 1 (1 of 2)', advice[0])

    def test_a_one_sample_tail_with_batchnorm_is_foreseen(self):
        _, advice, _ = self.probe("batchnorm")
        self.assertEqual(len(advice), 1, advice)
        self.assertIn("an epoch of 483 samples is 30 steps of 16 and one of 3, of which rank 1 "
                      "gets 1 in micro-batches of up to 8", advice[0])

    def test_accumulation_that_memory_does_not_need_is_said_but_not_against_a_cap(self):
        def said(mode, *flags):
            job, advice, _ = self.probe(mode, flags=flags)
            return [line for line in advice if "micro-steps" in line], job

        (line,), _ = said("accumulate")
        self.assertIn("2 micro-steps of up to 4 samples a rank, but memory was used to 30 % at "
                      "most: a micro-batch of 8 would fit (at most 60 %)", line)
        (line,), _ = said("accumulate", "--max-micro-batch-size=8")
        self.assertIn("a micro-batch of 8 would fit", line)
        lines, _ = said("accumulate", "--max-micro-batch-size=7")
        self.assertEqual(lines, [], "it may not be used")
        lines, job = said("runs-out")
        self.assertIn("micro-batch 4 -> 2", job.stderr)
        self.assertEqual(lines, [], "memory has run out with less")

    def test_the_noise_scale_comes_once_and_training_is_the_same_without_advice(self):
        _, advice, weights = self.probe("train")
        self.assertEqual(len(advice), 1, advice)
        self.assertRegex(advice[0], r"^the gradient noise scale is about [\d.]+ samples "
                                    r"\(50 readings\), the global batch is 16: ")
        job, none, same = self.probe("train", 2, "no-advice")
        self.assertNotIn("ddl: advice", job.stderr)
        self.assertEqual(none, [])
        self.assertEqual(weights, same, "bit for bit")


if __name__ == "__main__":
    unittest.main()
