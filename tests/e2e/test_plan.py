"""The training plan through real nodes: held when the world changes, by which policy,
lowered when programs without the SDK run out of memory. Programs are shell scripts
that write down the variables they got."""

import collections
import pathlib
import unittest

from harness import E2eTest, free_port, wait_until

PLAN = "round rank world restarts global_ micro accumulation share rate"
TELL = """
echo "$DDL_ROUND $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $DDL_GLOBAL_BATCH_SIZE \
$DDL_MICRO_BATCH_SIZE $DDL_GRAD_ACCUM_STEPS $DDL_RANK_BATCH_SIZE ${DDL_LEARNING_RATE:-0}" \
>> "$1/plans"
"""
UNTIL_DONE = TELL + 'until [ -e "$1/done" ]; do sleep 0.02; done\n'
# A micro-batch above the second argument does not fit. Every rank waits for all others
# of its round, so that each round is told of whole.
ALL_THERE = """
touch "$1/there.$DDL_ROUND.$RANK"
until [ "$(ls "$1" | grep -c "^there.$DDL_ROUND.")" = "$WORLD_SIZE" ]; do sleep 0.02; done
"""
OUT_BY_CODE = TELL + ALL_THERE + '[ "$DDL_MICRO_BATCH_SIZE" -le "$2" ] || exit 77\n'
WORDS = ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; "
         "15.78 GiB total capacity; 10.00 GiB already allocated; 512.00 MiB free; 14.50 GiB "
         "reserved in total by PyTorch)")
OUT_BY_WORDS = TELL + ALL_THERE + f"""
if [ "$RANK" = 1 ] && [ "$DDL_MICRO_BATCH_SIZE" -gt "$2" ]; then
  echo "{WORDS}" >&2
  exit 1
fi
[ "$DDL_MICRO_BATCH_SIZE" -le "$2" ] || sleep 60  # in a collective that waits for rank 1
"""


class Told(collections.namedtuple("Told", PLAN)):
    def split(self):
        return (self.global_, self.micro, self.accumulation)


class PlanTest(E2eTest):
    def plans(self):
        try:
            lines = pathlib.Path(self.path("plans")).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Told(*map(int, line.split()[:-1]), float(line.split()[-1])) for line in lines]

    def told(self):  # for wait_for_world
        return self.plans()

    def splits(self):
        """(global, micro, accumulation) of each round, one for all its ranks."""
        by_round = collections.defaultdict(set)
        for one in self.plans():
            by_round[one.round].add(one.split())
        self.assertEqual({len(found) for found in by_round.values()}, {1}, by_round)
        return [found.pop() for _, found in sorted(by_round.items())]


class WorldTest(PlanTest):
    def start_agent(self, nnodes, *flags):
        return self.start(f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=j",
                          f"--rdzv-endpoint=127.0.0.1:{self.port}", "--shutdown-timeout=10",
                          "--rdzv-conf=join_timeout=60,last_call_timeout=2", *flags,
                          self.program, self.dir)

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.program = self.script("until_done.sh", UNTIL_DONE)

    def test_world_of_4_3_2_and_5_holds_the_global_batch_or_comes_near(self):
        flags = ("--global-batch-size=48", "--micro-batch-size=4", "--base-lr=0.1",
                 "--base-batch-size=48", "--lr-scaling=linear")
        jobs = [self.start_agent("2:5", *flags)]  # the coordinator's host
        wait_until(lambda: "1 of 2 to 5" in jobs[0].stderr, "the first waits for more")
        jobs += [self.start_agent("2:5", *flags) for _ in range(3)]
        rounds = {4: self.wait_for_world(4)}
        for world in (3, 2):
            jobs.pop().process.kill()
            rounds[world] = self.wait_for_world(world, later_than=rounds[world + 1])
        jobs += [self.start_agent("2:5", *flags) for _ in range(3)]
        rounds[5] = self.wait_for_world(5, later_than=rounds[2])
        self.be_done()
        for job in jobs:
            self.assertEqual(job.wait().returncode, 0, self.said())
        told = {one.world: one for one in self.plans() if rounds.get(one.world) == one.round}
        self.assertEqual(told[4].split(), (48, 4, 3))
        self.assertEqual(told[3].split(), (48, 4, 4))
        self.assertEqual(told[2].split(), (48, 4, 6))
        self.assertEqual({told[world].rate for world in (4, 3, 2)}, {0.1})
        # 48 cannot be shared by 5: 50 is nearest, and the rate follows.
        self.assertEqual(told[5].split(), (50, 2, 5))
        self.assertAlmostEqual(told[5].rate, 0.1 * 50 / 48)
        said = jobs[0].stderr
        self.assertIn("world 4 -> 3 and accumulation 3 -> 4; global batch 48, micro-batch 4 and "
                      "learning rate 0.1 held", said)
        self.assertIn("global batch 48 cannot be shared evenly by 5 ranks: 50 is used", said)
        self.assertEqual({one.restarts for one in self.plans()}, {0})

    def test_nodes_that_ask_for_different_schedules_are_refused_before_a_worker_starts(self):
        flags = ("--global-batch-size=48", "--total-samples=4800")
        first = self.start_agent("2", *flags, "--warmup-ratio=0.1")
        wait_until(lambda: "1 of 2" in first.stderr, "the first waits for the second")
        second = self.start_agent("2", *flags, "--warmup-ratio=0.2").wait()
        self.assertEqual(second.returncode, 2, second.stderr)
        self.assertIn("--warmup-ratio=0.1", second.stderr)
        self.assertIn("--warmup-ratio=0.2", second.stderr)
        self.assertEqual(self.plans(), [])


class PolicyTest(PlanTest):
    def run_on_five(self, *flags):
        return self.launch("--nproc-per-node=5", "--global-batch-size=48",
                           "--max-micro-batch-size=4", *flags, "--no-python",
                           self.script("tell.sh", TELL), self.dir)

    def test_without_a_policy_a_job_of_fixed_size_is_refused_with_what_would_do(self):
        job = self.run_on_five()
        self.assertEqual(job.returncode, 2, job.stderr)
        self.assertIn("--global-batch-size=45 or 50", job.stderr)
        self.assertEqual(self.plans(), [])

    def test_nearest_takes_another_global_batch_and_says_so(self):
        job = self.run_on_five("--batch-policy=nearest")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.splits(), [(50, 2, 5)])
        self.assertIn("global batch 48 cannot be shared evenly by 5 ranks: 50 is used", job.stderr)

    def test_exact_gives_uneven_shares_that_sum_to_it(self):
        job = self.run_on_five("--batch-policy=exact")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual([one.share for one in sorted(self.plans(), key=lambda one: one.rank)],
                         [10, 10, 10, 9, 9])
        self.assertEqual({one.global_ for one in self.plans()}, {48})
        self.assertEqual(job.stderr.count("DDL_RANK_BATCH_SIZE"), 1, job.stderr)


class IncompleteTest(PlanTest):
    """Flags that a program without the SDK would have to complete."""

    def said_of(self, *flags):
        job = self.launch("--nproc-per-node=2", *flags, "--no-python",
                          self.script("tell.sh", TELL), self.dir)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(job.stderr.count("not in force until the program gives"), 1, job.stderr)
        return job.stderr

    def test_flag_that_does_nothing_is_said_with_what_it_needs(self):
        batch = ("--global-batch-size=64", "--base-lr=0.1")
        for flag, needed in (("--warmup-ratio=0.03", "--total-samples"),
                             ("--lr-scaling=linear", "--base-batch-size"),
                             ("--warmup-epochs=2", "--epoch-samples")):
            said = self.said_of(*batch, flag)
            self.assertIn(flag, said)
            self.assertIn(needed, said)

    def test_without_a_batch_none_of_the_plan_is_in_force(self):
        for flag in ("--base-lr=0.1", "--max-micro-batch-size=32"):
            with self.subTest(flag):
                job = self.launch("--nproc-per-node=2", flag, "true")
                self.assertEqual(job.returncode, 0, job.stderr)
                self.assertIn(f"{flag} needs a batch size", job.stderr)


class OutOfMemoryTest(PlanTest):
    def launch_out(self, body, fits, *flags):
        return self.launch("--nproc-per-node=2", *flags, "--no-python",
                           self.script("out.sh", body), self.dir, fits)

    def test_exit_code_of_the_user_restarts_with_a_smaller_micro_batch_that_costs_nothing(self):
        job = self.launch_out(OUT_BY_CODE, 4, "--global-batch-size=64",
                              "--max-micro-batch-size=16", "--oom-exit-codes=76,77")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.splits(), [(64, 16, 2), (64, 8, 4), (64, 4, 8)])
        self.assertEqual({one.restarts for one in self.plans()}, {0})
        self.assertIn("micro-batch 16 -> 8 and accumulation 2 -> 4; global batch 64 held",
                      job.stderr)

    def test_known_words_on_stderr_of_one_rank_restart_all(self):
        job = self.launch_out(OUT_BY_WORDS, 4, "--micro-batch-size=8", "--shutdown-timeout=5")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.splits(), [(16, 8, 1), (16, 4, 2)])
        self.assertIn("that is fragmentation", job.stderr)

    def test_two_nodes_restart_with_the_same_plan(self):
        port = free_port()
        program = self.script("out.sh", OUT_BY_CODE)
        jobs = [self.start("--nnodes=2", f"--node-rank={rank}", "--rdzv-backend=c10d",
                           f"--rdzv-endpoint=127.0.0.1:{port}", "--global-batch-size=32",
                           "--oom-exit-codes=77", "--no-python", program, self.dir, 4)
                for rank in (0, 1)]
        for job in jobs:
            self.assertEqual(job.wait().returncode, 0, self.said())
        self.assertEqual(self.splits(), [(32, 16, 1), (32, 8, 2), (32, 4, 4)])

    def test_at_the_floor_it_is_a_failure_that_says_what_is_left(self):
        job = self.launch_out(OUT_BY_CODE, 1, "--micro-batch-size=8", "--min-micro-batch-size=4",
                              "--oom-exit-codes=77")
        self.assertEqual(job.returncode, 77, job.stderr)
        self.assertEqual(self.splits(), [(16, 8, 1), (16, 4, 2)])
        cause = job.stderr[job.stderr.index("Root Cause"):]
        self.assertIn("--min-micro-batch-size=4", job.stderr)
        self.assertIn("mixed precision", cause)
        self.assertNotIn("--max-micro-batch-size", cause)

    def test_without_a_plan_it_is_a_failure_that_says_what_would_help(self):
        job = self.launch_out(f'echo "{WORDS}" >&2; exit 1', 1)
        self.assertEqual(job.returncode, 1, job.stderr)
        self.assertIn("--global-batch-size", job.stderr)

    def test_restarts_for_memory_leave_the_budget_for_other_failures(self):
        body = OUT_BY_CODE + '[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || exit 3\n'
        job = self.launch_out(body, 4, "--micro-batch-size=8", "--oom-exit-codes=77",
                              "--max-restarts=1")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual(self.splits(), [(16, 8, 1), (16, 4, 2), (16, 4, 2)])
        self.assertEqual([one.restarts for one in self.plans() if one.rank == 0], [0, 0, 1])

    def test_exit_codes_that_cannot_be_are_refused(self):
        job = self.launch("--oom-exit-codes=0", "true")
        self.assertEqual(job.returncode, 2)
        self.assert_one_line_error(job, "--oom-exit-codes=0", "1 to 255")


if __name__ == "__main__":
    unittest.main()
