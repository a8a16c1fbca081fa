"""Real PyTorch programs, unchanged: Gloo and DistributedDataParallel.

DDL_TORCH_PYTHON: a Python that has PyTorch; default /usr/bin/python3, with Debian's
python3-torch (1.13). With the newest, in a virtual environment:

    python3 -m venv DIR && DIR/bin/pip install torch
    DDL_TORCH_PYTHON=DIR/bin/python DDL_BIN_DIR=build/release/bin \\
        python3 -B tests/e2e/test_pytorch.py
"""

import os
import pathlib
import re
import signal
import unittest

from harness import E2eTest, free_port, wait_until

PYTHON = os.environ.get("DDL_TORCH_PYTHON", "/usr/bin/python3")
DDP = str(pathlib.Path(__file__).parent / "programs" / "ddp.py")


class PyTorchTest(E2eTest):
    def environment(self, extra):
        # One thread a worker: the machine is small.
        return super().environment({"PYTHON_EXEC": PYTHON, "OMP_NUM_THREADS": "1",
                                    "GLOO_SOCKET_IFNAME": "lo", **extra})

    def start_node(self, *args, endpoint, nnodes="2", nproc=1, flags=()):
        return self.start(f"--nnodes={nnodes}", f"--nproc-per-node={nproc}", "--rdzv-backend=c10d",
                          f"--rdzv-endpoint={endpoint}", "--rdzv-id=j", *flags, DDP, self.dir, *args)

    def two_nodes(self, *args, **kwargs):
        endpoint = f"127.0.0.1:{free_port()}"
        return [self.start_node(*args, endpoint=endpoint, **kwargs) for _ in range(2)]

    def assert_all_end_with(self, code, jobs):
        for job in jobs:
            job.wait()
        self.assertEqual([job.returncode for job in jobs], [code] * len(jobs), self.said())

    def spans(self, *jobs):
        """rank -> the steps that it did, and in which world."""
        found = re.findall(r"rank (\d+) of (\d+): steps (\d+) to (\d+)",
                           "".join(job.stdout for job in jobs))
        return {int(rank): tuple(map(int, rest)) for rank, *rest in found}

    def test_ddp_over_two_nodes_of_two(self):
        jobs = self.two_nodes(nproc=2)
        self.assert_all_end_with(0, jobs)
        self.assertEqual(self.spans(*jobs), {rank: (4, 0, 8) for rank in range(4)})

    def test_init_method_tcp(self):
        jobs = self.two_nodes("--tcp")
        self.assert_all_end_with(0, jobs)
        self.assertEqual(self.spans(*jobs), {rank: (2, 0, 8) for rank in range(2)})

    def test_worker_store(self):
        jobs = self.two_nodes(flags=["--worker-store"])
        self.assert_all_end_with(0, jobs)
        self.assertEqual(self.spans(*jobs), {rank: (2, 0, 8) for rank in range(2)})

    def test_exception_is_reported_by_all_with_its_rank(self):
        jobs = self.two_nodes("--raise-on=1")
        self.assert_all_end_with(1, jobs)
        for job in jobs:
            cause = job.stderr[job.stderr.index("Root Cause"):]
            self.assertRegex(cause, r"rank\s*:\s*1 ")
            self.assertIn("ValueError: the sample is broken", cause)

    def test_restart_goes_on_from_the_checkpoint(self):
        job = self.start("--nproc-per-node=2", "--max-restarts=1", DDP, self.dir, "--fail-once=1")
        self.assert_all_end_with(0, [job])
        self.assertEqual(self.spans(job), {rank: (2, 3, 8) for rank in range(2)})

    def test_elastic_job_outlives_the_node_of_rank_zero(self):
        coordinator = self.start("coordinator", "--listen", "127.0.0.1:0")
        endpoint = wait_until(lambda: re.search(r"listening on (\S+:\d+)", coordinator.stderr),
                              "the coordinator listens")[1]
        flags = ["--max-restarts=3", "--rdzv-conf=is_host=0,last_call_timeout=1"]
        first = self.start_node("--until=done", endpoint=endpoint, nnodes="1:2", flags=flags)
        alone = self.wait_for_world(1)
        wait_until(pathlib.Path(self.path("checkpoint.pt")).exists, "a step was done")
        second = self.start_node("--until=done", endpoint=endpoint, nnodes="1:2", flags=flags)
        both = self.wait_for_world(2, later_than=alone)
        first.process.send_signal(signal.SIGKILL)
        self.wait_for_world(1, later_than=both)
        self.be_done()
        self.assert_all_end_with(0, [second])
        world, began, ended = self.spans(second)[0]
        self.assertEqual(world, 1)
        self.assertGreater(began, 0)  # what the first node had saved
        self.assertGreater(ended, began)


if __name__ == "__main__":
    unittest.main()
