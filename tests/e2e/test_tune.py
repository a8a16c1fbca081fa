#!/usr/bin/env python3
"""ddlaunch tune: finds the micro-batch of a program, real or scripted, and leaves
what it found, however it ends.
"""

import contextlib
import csv
import os
import pathlib
import pty
import signal
import subprocess
import unittest
import xml.etree.ElementTree

import harness

FAKE_NVML_DIR = harness.BIN_DIR.parent / "fake_nvml"
STEPS = pathlib.Path(__file__).parent / "programs" / "steps.py"
PNG_HEADER = b"\x89PNG\r\n\x1a\n"


class Tune(harness.E2eTest):
    def tune(self, *args, **kwargs):
        return self.launch("tune", "--tune-dir=tuned", *args, **kwargs)

    def trials(self):
        with open(self.path("tuned/trials.csv"), newline="", encoding="ascii") as file:
            return list(csv.DictReader(file))

    def outcomes(self):
        return [(int(t["micro_batch_size"]), t["outcome"]) for t in self.trials()]

    def yaml(self):
        """The lines of tune.yaml that are no remarks."""
        text = pathlib.Path(self.path("tuned/tune.yaml")).read_text()
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    def assert_picture(self, label="knee: "):
        svg = pathlib.Path(self.path("tuned/tune.svg"))
        root = xml.etree.ElementTree.parse(svg).getroot()
        self.assertTrue(root.tag.endswith("svg"), root.tag)
        self.assertIn(label, svg.read_text())
        png = pathlib.Path(self.path("tuned/tune.png")).read_bytes()
        self.assertTrue(png.startswith(PNG_HEADER))
        self.assertGreater(len(png), 1000)

    # ---- what it finds ------------------------------------------------------------

    def test_sdk_program_gives_a_file_that_a_launch_takes(self):
        job = self.tune("--max-micro-batch-size=8", "--check-loss", harness.TRAIN_BIN,
                        "--epochs=100000")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.outcomes()[:4], [(m, "fits") for m in (1, 2, 4, 8)])
        for trial in self.trials():
            self.assertGreater(float(trial["samples_per_s"]), 0)
            self.assertGreater(int(trial["peak_bytes"]), 1 << 20)
            self.assertGreaterEqual(int(trial["steps"]), 20)
        self.assertIn("the same curve", job.stderr)
        rises = "still rising" in job.stderr
        self.assert_picture("(still rising)" if rises else "knee: ")
        micro = int(self.yaml()[0].removeprefix("micro-batch-size: "))
        launch = self.launch("--config", self.path("tuned/tune.yaml"),
                             "--nproc-per-node=2", harness.TRAIN_BIN, "--epochs=1")
        self.assertEqual(launch.returncode, 0, launch.stderr)
        self.assertIn(f"global batch {2 * micro} = micro {micro} x accumulation 1 x world 2",
                      launch.stderr)
        self.assert_nothing_left()

    def test_out_of_memory_ends_the_search_below_it(self):
        job = self.tune("--global-batch-size=256", "--base-lr=0.1", "--world=1,8", STEPS,
                        "--oom-above=40")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.outcomes(),
                         [(1, "fits"), (2, "fits"), (4, "fits"), (8, "fits"), (16, "fits"),
                          (32, "fits"), (64, "out of memory"), (48, "out of memory"),
                          (40, "fits")])
        self.assertEqual(self.yaml(), ["max-micro-batch-size: 40", "global-batch-size: 256",
                                       "base-lr: 0.1"])
        rows = [line.split() for line in job.stdout.splitlines()]
        self.assertIn(["1", "32", "8", "256", "0.1"], [row[:5] for row in rows], job.stdout)
        self.assertIn(["8", "32", "1", "256", "0.1"], [row[:5] for row in rows], job.stdout)

    def test_sdk_program_out_of_memory_is_final_in_a_trial(self):
        job = self.tune("--min-micro-batch-size=4", harness.TRAIN_BIN, "--epochs=100000",
                        "--oom-above=8")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.outcomes()[:3], [(4, "fits"), (8, "fits"), (16, "out of memory")])
        self.assertLessEqual(int(self.yaml()[0].split()[1]), 8)

    def test_out_of_memory_in_the_words_of_a_library_is_no_failure(self):
        job = self.tune(STEPS, "--oom-above=2", "--oom-words=CUBLAS_STATUS_ALLOC_FAILED")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn((4, "out of memory"), self.outcomes())

    def test_knee_below_memory_is_chosen(self):
        job = self.tune(STEPS, "--fixed=7")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn(int(self.yaml()[0].split()[1]), (48, 64))

    def test_bound_below_the_knee_is_chosen_and_said(self):
        job = self.tune("--max-micro-batch-size=4", STEPS)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.outcomes(), [(1, "fits"), (2, "fits"), (4, "fits")])
        self.assertIn("still rising at --max-micro-batch-size=4; allow more", job.stderr)
        self.assertNotIn("knee", job.stderr)
        self.assertEqual(self.yaml()[0], "micro-batch-size: 4")
        self.assert_picture("choice: 4 (still rising)")

    def test_floor_that_does_not_fit_is_left_out_and_said(self):
        job = self.tune("--min-micro-batch-size=64", "--world=1,2", STEPS, "--oom-above=16")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("--min-micro-batch-size=64 does not fit: the proposal has 16", job.stderr)
        self.assertEqual(self.yaml(), ["micro-batch-size: 16", "grad-accum-steps: 1"])
        self.assertNotIn("no plan", job.stdout)
        self.assertIn("go on with", job.stderr)

    def test_proposal_without_any_plan_is_an_error_and_no_advice(self):
        # The rate of the micro-batch that fits is below the start of the warm-up.
        job = self.tune("--base-lr=0.1", "--base-batch-size=32", "--lr-scaling=linear",
                        "--warmup-start-lr=0.05", "--world=1", STEPS, "--oom-above=8")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("no world has a plan with this micro-batch", job.stderr)
        self.assertIn("--warmup-start-lr=0.05", job.stdout)
        self.assertNotIn("go on with", job.stderr)

    def test_gpu_memory_bounds_the_choice(self):
        gpus, memory = self.path("gpus"), self.path("memory")
        pathlib.Path(gpus).write_text("GPU-1a2b|H200|0:1:0\n")
        pathlib.Path(memory).write_text(f"{1000 << 20} 0\n")
        environment = {"LD_LIBRARY_PATH": str(FAKE_NVML_DIR), "DDL_FAKE_NVML": gpus,
                       "DDL_FAKE_NVML_MEMORY": memory}
        # Of 1000 MiB a trial may have 900: 69 samples of 13 MiB.
        job = self.tune(STEPS, f"--memory-file={memory}", f"--bytes-per-sample={13 << 20}",
                        env=environment)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("GPU H200 (GPU-1a2b)", job.stderr)
        self.assertEqual(self.outcomes()[-4:],
                         [(64, "fits"), (128, "too much memory"), (96, "too much memory"),
                          (80, "too much memory")])
        self.assertEqual(self.yaml()[0], "micro-batch-size: 64")
        self.assertIn("still rising where the memory ends", job.stderr)

    def test_checks_say_what_is_wrong(self):
        job = self.tune("--check-loss", "--check-scaling", "--nproc-per-node=2",
                        "--max-micro-batch-size=4", STEPS, "--loss-by-micro", "--slow-together")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertRegex(job.stderr, r"loss: 4 x 1 and 2 x 2 differ by \d+ %, more than 5")
        self.assertRegex(job.stderr, r"scaling: 2 workers do 1 times .* \(50 %\): under 75 %, "
                                     "communication-bound")

    def test_variables_and_file_give_flags_too(self):
        config = self.path("train.yaml")
        pathlib.Path(config).write_text("base_lr: 0.5\nmicro-batch-size: 3\nnnodes: 2\n")
        job = self.tune("--config", config, STEPS,
                        env={"PET_MAX_MICRO_BATCH_SIZE": "2", "PET_NPROC_PER_NODE": "2"})
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.outcomes(), [(1, "fits"), (2, "fits")])
        self.assertIn(["4", "2", "1", "8", "0.5"],
                      [line.split()[:5] for line in job.stdout.splitlines()], job.stdout)

    # ---- how it can end ---------------------------------------------------------------

    def test_interrupt_leaves_what_was_measured(self):
        job = self.start("tune", "--tune-dir=tuned", STEPS, "--hang-at=4")
        log = pathlib.Path(self.path("tuned/trial-03-micro-4.log"))
        harness.wait_until(lambda: log.exists() and "hanging" in log.read_text(), "the third trial")
        job.process.send_signal(signal.SIGINT)
        job.wait()
        self.assertEqual(job.returncode, 130, job.stderr)
        self.assertIn("stopped by SIGINT; what was measured before is kept", job.stderr)
        self.assertEqual(self.outcomes(), [(1, "fits"), (2, "fits"), (4, "interrupted")])
        self.assertEqual(self.yaml()[0], "micro-batch-size: 2")
        self.assert_picture("choice: 2 (still rising)")
        self.assertNotIn("\r", job.stderr)
        self.assert_nothing_left()

    def test_terminal_shows_how_far_a_trial_is(self):
        master, slave = pty.openpty()
        job = subprocess.Popen([harness.DDLAUNCH, "tune", "--tune-dir=tuned", STEPS, "--hang-at=2"],
                               env=self.environment({}), cwd=self.path("."), stdin=slave,
                               stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        said = b""
        while b"micro-batch 2: no step yet, 0 s of 300" not in said:
            said += os.read(master, 4096)
        job.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # EIO: it has ended
            while piece := os.read(master, 4096):
                said += piece
        os.close(master)
        self.assertEqual(job.wait(timeout=60), 130)
        # Each line begins where the one before was wiped out.
        self.assertRegex(said, rb"\r +\rddlaunch: micro-batch 1: \d+\S* samples/s")
        self.assertRegex(said, rb"\r +\rddlaunch: stopped by SIGINT")

    def test_killed_takes_its_trial_along(self):
        job = self.start("tune", "--tune-dir=tuned", STEPS, "--hang-at=1")
        log = pathlib.Path(self.path("tuned/trial-01-micro-1.log"))
        harness.wait_until(lambda: log.exists() and "hanging" in log.read_text(), "the first trial")
        job.process.kill()
        job.wait()
        self.assert_nothing_left()

    def test_program_that_fails_gives_its_code_and_last_lines(self):
        job = self.tune(STEPS, "--exit=3")
        self.assertEqual(job.returncode, 3, job.stderr)
        self.assertIn("this machine is on strike", job.stderr)
        self.assertIn("tuned/trial-01-micro-1.log", job.stderr)
        self.assertNotIn("gnuplot", job.stderr)

    def test_proposal_of_an_earlier_tuning_is_set_aside(self):
        job = self.tune("--max-micro-batch-size=2", STEPS)
        self.assertEqual(job.returncode, 0, job.stderr)
        earlier = self.yaml()
        job = self.tune(STEPS, "--exit=3")
        self.assertEqual(job.returncode, 3, job.stderr)
        self.assertFalse(os.path.exists(self.path("tuned/tune.yaml")))
        self.assertFalse(os.path.exists(self.path("tuned/tune.svg")))
        os.rename(self.path("tuned/tune.yaml.old"), self.path("tuned/tune.yaml"))
        self.assertEqual(self.yaml(), earlier)

    def test_second_tune_in_the_same_directory_is_refused(self):
        first = self.start("tune", "--tune-dir=tuned", STEPS, "--hang-at=1")
        log = pathlib.Path(self.path("tuned/trial-01-micro-1.log"))
        harness.wait_until(lambda: log.exists() and "hanging" in log.read_text(), "the first trial")
        job = self.tune(STEPS)
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("another ddlaunch tune writes to tuned", job.stderr)
        self.assertIn("hanging", log.read_text())
        first.process.send_signal(signal.SIGINT)
        first.wait()
        self.assertEqual(self.outcomes(), [(1, "interrupted")])

    def test_first_micro_batch_out_of_memory_is_said(self):
        job = self.tune(STEPS, "--oom-above=0")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("no micro-batch fits, not even 1", job.stderr)

    def test_program_without_steps_is_told_what_to_write(self):
        job = self.tune("--trial-timeout=0.5", STEPS, "--silent")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("no step within 0.5 s", job.stderr)
        self.assertIn("DDL_STEP_LOG", job.stderr)
        job = self.tune("--no-python", "/bin/true")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("it ended without a step", job.stderr)

    def test_program_that_ends_early_is_told_to_train_longer(self):
        job = self.tune(STEPS, "--steps=2")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("it ended after 2 steps, too few to measure", job.stderr)

    def test_program_that_ignores_the_plan_is_found_out(self):
        job = self.tune(STEPS, "--ignore-plan")
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("whatever DDL_MICRO_BATCH_SIZE says", job.stderr)

    def test_wrong_flags_start_no_trial(self):
        for args, text in (
            (["--memory-limit=2"], "--memory-limit=2: must be above 0 and at most 1"),
            (["--trial-step=0"], "--trial-steps=0"),
            (["--check-scaling"], "give more than 1"),
            (["--world=4..1"], "--world=4..1: must be world sizes"),
            (["--trail-steps=5"], "did you mean --trial-steps?"),
            (["--numa-binding=moon"], "--numa-binding=moon"),
            (["--rdzv-endpoint=host0"], "--rdzv-endpoint: it has no meaning in ddlaunch tune"),
            (["--tee=3"], "--tee: it has no meaning in ddlaunch tune"),
            (["--micro-batch-size=3"], "--micro-batch-size: ddlaunch tune chooses it"),
            (["--min-micro-batch-size=8", "--max-micro-batch-size=4"], "is above --max-micro-batch-size=4"),
        ):
            job = self.tune(*args, STEPS)
            self.assertEqual(job.returncode, 2, job.stderr)
            self.assert_one_line_error(job, text)
        self.assertEqual(self.tune().returncode, 2)
        self.assertEqual(self.tune("./none").returncode, 127)
        self.assertFalse(os.path.exists(self.path("tuned")))
        job = self.launch("--trial-steps=5", STEPS)
        self.assert_one_line_error(job, "--trial-steps: only for ddlaunch tune")

    def test_no_place_for_results_is_said_by_name(self):
        pathlib.Path(self.path("file")).touch()
        job = self.tune("--tune-dir=file/tune", STEPS)
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("--tune-dir: cannot make file", job.stderr)
        os.mkdir(self.path("tuned"))
        os.symlink("/dev/full", self.path("tuned/trials.csv"))
        job = self.tune(STEPS)
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("cannot write tuned/trials.csv: No space left", job.stderr)

    def test_proposal_that_cannot_be_written_is_no_file_at_all(self):
        job = self.start("tune", "--tune-dir=tuned", STEPS, "--hang-at=2")
        log = pathlib.Path(self.path("tuned/trial-02-micro-2.log"))
        harness.wait_until(lambda: log.exists() and "hanging" in log.read_text(), "the second trial")
        os.symlink("/dev/full", self.path("tuned/tune.yaml"))
        job.process.send_signal(signal.SIGINT)
        job.wait()
        self.assertIn("cannot write tuned/tune.yaml: No space left", job.stderr)
        self.assertFalse(os.path.lexists(self.path("tuned/tune.yaml")))

    def test_full_disk_keeps_and_shows_what_was_measured(self):
        job = self.start("tune", "--tune-dir=tuned", STEPS, "--hang-at=4", "--hang-until=go")
        log = pathlib.Path(self.path("tuned/trial-03-micro-4.log"))
        harness.wait_until(lambda: log.exists() and "hanging" in log.read_text(), "the third trial")
        for name in ("trials.csv", "tune.yaml"):
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.path(f"tuned/{name}"), self.path(f"tuned/{name}.before"))
            os.symlink("/dev/full", self.path(f"tuned/{name}"))
        pathlib.Path(self.path("go")).touch()
        job.wait()
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("cannot write tuned/trials.csv: No space left", job.stderr)
        self.assertIn("micro-batch 4: samples/s still rising", job.stderr)
        self.assertIn("cannot write tuned/tune.yaml: No space left", job.stderr)
        self.assertIn(["8", "4", "1", "32"],
                      [line.split()[:4] for line in job.stdout.splitlines()], job.stdout)
        self.assertNotIn("go on with", job.stderr)

    def test_without_gnuplot_all_else_is_written(self):
        tools = self.path("tools")
        os.mkdir(tools)
        os.symlink("/usr/bin/python3", os.path.join(tools, "python3"))
        job = self.tune("--max-micro-batch-size=2", STEPS, env={"PATH": tools})
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("no picture: there is no gnuplot", job.stderr)
        self.assertEqual(self.yaml()[0], "micro-batch-size: 2")
        self.assertFalse(os.path.exists(self.path("tuned/tune.svg")))
        self.assertTrue(os.path.exists(self.path("tuned/tune.gp")))


if __name__ == "__main__":
    unittest.main()
