"""Programs without the SDK that run out of device memory: which end is one, whoever of
the ranks is heard of first. Each starts with micro-batch 8, of which 4 fit."""

import pathlib
import sys
import unittest

from harness import E2eTest, wait_until
from test_failures import PATIENCE, TORCH_PYTHON, root_cause

WORDS = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
FITS = 'echo "$DDL_ROUND" >> "$1/rounds"\n[ "$DDL_MICRO_BATCH_SIZE" -gt 4 ] || exit 0\n'
# Rank 1 notices the broken collective, and has left before rank 0, which broke it.
PEER = FITS + """
if [ $RANK = 0 ]; then
  %s
  touch "$1/out"; %s
fi
until [ -e "$1/out" ]; do sleep 0.01; done
echo "RuntimeError: [enforce fail] Connection closed by peer [127.0.0.1]:2323" >&2
exit 1
"""
SLOW = "trap '' TERM; until [ -e \"$1/go\" ]; do sleep 0.01; done; exit "

# PyTorch's own: the rank that ran out puts its process group away first.
TEARDOWN = """import os, sys, time
import torch, torch.distributed as dist
fits = int(os.environ["DDL_MICRO_BATCH_SIZE"]) <= 4
dist.init_process_group("gloo")
t = torch.ones(1000)
dist.all_reduce(t)
if fits:
    sys.exit(0)
if dist.get_rank() == 1:
    if sys.argv[1] == "says":
        print("RuntimeError: CUDA out of memory.", file=sys.stderr, flush=True)
    dist.destroy_process_group()
    time.sleep(0.1)
    sys.exit(77)
while True:
    dist.all_reduce(t)
"""


class MemoryCase(E2eTest):
    def python(self, name, body):
        path = self.path(name)
        pathlib.Path(path).write_text(body)
        return path

    def shell(self, body, *flags, nproc=1):
        return self.start(f"--nproc_per_node={nproc}", "--micro-batch-size=8", *flags,
                          "--no-python", self.script("train.sh", body), self.dir)

    def rounds(self):
        return sorted({int(line) for line in
                       pathlib.Path(self.path("rounds")).read_text().split()})

    def assert_restarted(self, job):
        self.assertEqual(job.wait(PATIENCE).returncode, 0, job.stderr)
        self.assertIn("for lack of device memory", job.stderr)
        self.assertIn("micro-batch 8 -> 4", job.stderr)

    def assert_failed(self, job, code):
        self.assertEqual(job.wait().returncode, code, job.stderr)
        self.assertEqual(self.rounds(), [1])


class PeerIsFirstTest(MemoryCase):
    def late(self, job):
        wait_until(lambda: "rank 1 (local rank 1)" in job.stderr, "the peer's failure is told")
        self.be_done("go")
        self.assert_restarted(job)

    def test_words_on_stderr_are_the_cause(self):
        self.late(self.shell(PEER % (f'echo "{WORDS}" >&2', SLOW + "1"), nproc=2))

    def test_words_are_the_cause_though_a_handler_speaks_after_them(self):
        job = self.shell(PEER % (f'echo "{WORDS}" >&2; trap "echo got SIGTERM: exiting >&2; exit 1" TERM',
                                 "while :; do sleep 0.01; done"), nproc=2)
        self.assert_restarted(job)

    def test_exit_code_is_the_cause(self):
        self.late(self.shell(PEER % ("", SLOW + "77"), "--oom-exit-codes=77", nproc=2))

    def test_rank_that_does_not_heed_sigterm_has_a_moment_to_leave_by_itself(self):
        self.assert_restarted(self.shell(PEER % ("", "sleep 0.2; exit 77"), "--oom-exit-codes=77",
                                         nproc=2))

    def test_any_exit_code_of_the_rank_that_leaves_by_itself_is_the_cause(self):
        job = self.shell(PEER % ('echo "no label" >&2', "sleep 0.2; exit 7"), nproc=2)
        self.assert_failed(job, 7)
        self.assertIn("0 (local_rank: 0)", root_cause(job.stderr)[0]["rank"])


@unittest.skipIf(TORCH_PYTHON is None, "needs PyTorch (python3-torch)")
class TorchTest(MemoryCase):
    def teardown(self, how, *flags):
        job = self.start("--nproc_per_node=2", "--micro-batch-size=8", *flags,
                         self.python("train.py", TEARDOWN), how,
                         env={"PYTHON_EXEC": TORCH_PYTHON, "GLOO_SOCKET_IFNAME": "lo"})
        self.assert_restarted(job)

    def test_exit_code_after_a_teardown(self):
        self.teardown("mute", "--oom-exit-codes=77")

    def test_words_before_a_teardown(self):
        self.teardown("says")


class LastWordsTest(MemoryCase):
    def test_exception_that_comes_later_is_the_cause(self):
        program = self.python("probe.py", f"""import os, sys
open(sys.argv[1] + "/rounds", "a").write(os.environ["DDL_ROUND"] + "\\n")
print("{WORDS}; probing", file=sys.stderr)
open("/no/such/data")
""")
        job = self.start("--nproc_per_node=1", "--micro-batch-size=8", program, self.dir,
                         env={"PYTHON_EXEC": sys.executable})
        self.assert_failed(job, 1)
        self.assertNotIn("micro-batch", root_cause(job.stderr)[0].get("hint", ""))

    def test_words_that_the_program_survived_are_not(self):
        self.assert_failed(self.shell(FITS + f'echo "{WORDS} (caught)" >&2\n'
                                      "for i in $(seq 15); do echo line $i >&2; done\n"
                                      'echo "bad label" >&2; exit 3\n'), 3)

    def test_native_stack_of_any_length_is_recognised(self):
        job = self.shell(FITS + """
echo "terminate called after throwing an instance of 'c10::OutOfMemoryError'
  what():  CUDA out of memory. Tried to allocate 2.00 GiB
Exception raised from malloc at Allocator.cpp:936 (most recent call first):" >&2
for i in $(seq 0 90); do echo "frame #$i: at::native::addmm + 0x57 (0x7f in libtorch.so)" >&2; done
kill -ABRT $$
""")
        self.assert_restarted(job)

    def test_signal_by_a_shells_code(self):
        self.assert_restarted(self.shell(FITS + "kill -KILL $$\n", "--oom-exit-codes=77,137"))


class FloorTest(MemoryCase):
    def test_job_ends_though_restarts_are_left(self):
        job = self.shell(FITS + f'echo "{WORDS}" >&2; exit 1\n', "--min-micro-batch-size=8",
                         "--max-restarts=2")
        self.assert_failed(job, 1)
        self.assertIn("--min-micro-batch-size=8", job.stderr)
        self.assertIn("mixed precision", root_cause(job.stderr)[0]["hint"])


if __name__ == "__main__":
    unittest.main()
