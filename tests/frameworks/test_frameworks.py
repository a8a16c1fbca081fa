"""Programs of Accelerate, TensorFlow and JAX, as they are, on two nodes of two
workers. deploy/python-frameworks.sh makes the environments they run in."""

import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import E2eTest, free_port  # noqa: E402

ENVIRONMENTS = pathlib.Path(os.environ["DDL_FRAMEWORKS_DIR"])
WAIT_S = 300  # four interpreters that import TensorFlow, on a loaded machine
WORLD = 4
SKIPPED = 77


class FrameworkTest(E2eTest):
    def run_two_nodes(self, script, flags=(), args=()):
        """Runs it as in the activated environment; returns all that the workers printed."""
        python = ENVIRONMENTS / self.environment_name / "bin"
        env = {"PATH": f"{python}:{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3"}
        endpoint = f"127.0.0.1:{free_port()}"
        nodes = [self.start("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                            f"--rdzv-endpoint={endpoint}", f"--rdzv-id={self.mark}", *flags,
                            HERE / script, *args, env=env) for _ in range(2)]
        for node in nodes:
            node.wait(WAIT_S)
        for node in nodes:
            self.assertEqual(node.returncode, 0, self.said())
        return "".join(node.stdout for node in nodes)

    def assert_said(self, text, *lines):
        for line in lines:
            self.assertEqual(text.count(line), 1, f"{line}\n{text}\n{self.said()}")


class Accelerate(FrameworkTest):
    environment_name = "accelerate"  # with Debian's PyTorch

    def test_unchanged_script_trains_as_one_job_with_the_plans_accumulation(self):
        text = self.run_two_nodes("train_accelerate.py",
                                  ["--global-batch-size=16", "--micro-batch-size=2"])
        self.assert_said(text, *(f"accelerate: rank {rank} of {WORLD}, accumulation 2, 64 steps, "
                                 "weight 3.00" for rank in range(WORLD)))

    def test_without_a_plan_the_scripts_own_accumulation_holds(self):
        text = self.run_two_nodes("train_accelerate.py")
        self.assert_said(text, *(f"accelerate: rank {rank} of {WORLD}, accumulation 1, 128 steps"
                                 for rank in range(WORLD)))


class NewestTorch(Accelerate):
    """The same with the newest PyTorch."""

    environment_name = "newest-torch"


class TensorFlow(FrameworkTest):
    environment_name = "tensorflow-jax"

    def assert_trained(self, text):
        self.assert_said(text, *(f"tensorflow: worker {rank} of {WORLD}, weight 3.00"
                                 for rank in range(WORLD)))

    def test_multi_worker_mirrored_strategy_trains_unchanged(self):
        self.assert_trained(self.run_two_nodes("train_tensorflow.py",
                                               ["--env=tensorflow"]))

    def test_restart_finds_the_same_cluster_again(self):
        text = self.run_two_nodes("train_tensorflow.py",
                                  ["--env=tensorflow", "--max-restarts=1", "--shutdown-timeout=2"],
                                  ["fail-once"])
        self.assert_trained(text)


class Jax(FrameworkTest):
    environment_name = "tensorflow-jax"

    def assert_trained(self, text):
        self.assert_said(text, *(f"jax: process {rank} of {WORLD}, {WORLD} devices, weight 3.00"
                                 for rank in range(WORLD)))

    def test_initialize_without_arguments_trains_unchanged(self):
        self.assert_trained(self.run_two_nodes("train_jax.py", ["--env=jax"]))

    def test_restart_finds_rank_0_again(self):
        # JAX takes SIGTERM for a notice of preemption, and goes on.
        text = self.run_two_nodes("train_jax.py",
                                  ["--env=jax", "--max-restarts=1", "--shutdown-timeout=2"],
                                  ["fail-once"])
        self.assert_trained(text)


def missing_environment(names):
    """The first environment that the tests of these names (all: none) need and have not."""
    cases = [case for case in (Accelerate, NewestTorch, TensorFlow, Jax)
             if any(name.startswith(case.__name__) for name in names)]
    for case in cases or (Accelerate, TensorFlow):
        if not (ENVIRONMENTS / case.environment_name / "made-of").is_file():
            return case.environment_name
    return None


if __name__ == "__main__":
    missing = missing_environment(sys.argv[1:])
    if missing:
        print(f"skipped: run deploy/python-frameworks.sh {ENVIRONMENTS} {missing}")
        sys.exit(SKIPPED)
    unittest.main()
