"""Nodes that come, go and return while the job lives. All on loopback; what the
coordinator's own host does to a job is in test_rendezvous.py."""

import json
import pathlib
import signal
import time
import unittest

from harness import TRAIN_BIN, UNTIL_DONE, E2eTest, free_port, wait_until

# Ends half a second after it is told to, and keeps a diary under a lock: a worker
# that starts while one of an earlier round lives writes "overlap".
DIARY = """
import fcntl, os, signal, sys, time
path = sys.argv[1] + "/diary"
me = int(os.environ["DDL_ROUND"])

def lives(pid):
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False

def write(file, word):
    file.seek(0, os.SEEK_END)
    file.write(f"{word} {me} {os.environ['RANK']} {os.environ['WORLD_SIZE']} {os.getpid()}\\n")
    file.flush()

def note(word):
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        before = [line.split() for line in file.read().splitlines()]
        ended = {pid for what, _, _, _, pid in before if what == "end"}
        if word == "start" and any(what == "start" and int(number) != me and pid not in ended
                                   and lives(pid) for what, number, _, _, pid in before):
            write(file, "overlap")
        write(file, word)

def leave(*_):
    time.sleep(0.5)
    note("end")
    os._exit(0)

signal.signal(signal.SIGTERM, leave)
note("start")
while not os.path.exists(sys.argv[1] + "/done"):
    time.sleep(0.02)
note("end")
"""


class ElasticTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.program = self.script("until_done.sh", UNTIL_DONE)
        self.port = free_port()

    def start_agent(self, nnodes, *flags, program=None, args=None, conf="",
                    join_timeout=40, heartbeat_timeout=5):
        return self.start(f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=j",
                          f"--rdzv-endpoint=127.0.0.1:{self.port}", "--shutdown-timeout=10",
                          f"--rdzv-conf=join_timeout={join_timeout},"
                          f"heartbeat_timeout={heartbeat_timeout}{conf}", *flags,
                          program or self.program, *(args or [self.dir]))

    def start_agents(self, nnodes, count, *flags, **kwargs):
        """The first one hosts the coordinator."""
        jobs = [self.start_agent(nnodes, *flags, **kwargs)]
        wait_until(lambda: "1 of " in jobs[0].stderr, "the first agent waits for more")
        return jobs + [self.start_agent(nnodes, *flags, **kwargs) for _ in range(count - 1)]

    def assert_success(self, jobs):
        said = "\n----\n".join(job.wait().stderr for job in jobs)
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), said)

    def assert_no_restart_was_charged(self):
        self.assertEqual({one.restarts for one in self.told()}, {0})

    def worlds(self):
        """The size of each round, in their order."""
        sizes = {one.round: one.world for one in self.told()}
        return [sizes[number] for number in sorted(sizes)]

    # ---- coming --------------------------------------------------------------

    def test_third_node_comes_late_one_more_round_with_all_three(self):
        jobs = self.start_agents("1:3", 2)
        first = self.wait_for_world(2)
        jobs.append(self.start_agent("1:3"))
        self.wait_for_world(3, later_than=first)
        self.be_done()
        self.assert_success(jobs)
        self.assertEqual(self.worlds(), [2, 3])
        self.assert_no_restart_was_charged()

    def test_all_are_there_no_last_call_is_waited_for(self):
        jobs = self.start_agents("2:3", 3, conf=",last_call_timeout=300")
        self.wait_for_world(3)
        self.be_done()
        self.assert_success(jobs)
        self.assertEqual(self.worlds(), [3])

    def test_fewer_than_the_minimum_is_an_error_that_counts(self):
        job = self.start_agent("2:3", join_timeout=1).wait()
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("1 of 2 to 3 nodes", job.stderr)
        self.assertEqual(self.told(), [])

    def test_third_agent_of_two_is_a_spare_and_takes_over(self):
        jobs = self.start_agents("2", 2)
        first = self.wait_for_world(2)
        spare = self.start_agent("2")
        wait_until(lambda: "spare 1" in spare.stderr, "the third is told that it is a spare")
        self.assertEqual(self.worlds(), [2])
        jobs[1].process.kill()
        self.wait_for_world(2, later_than=first)
        self.be_done()
        self.assert_success([jobs[0], spare])
        self.assertEqual(self.worlds(), [2, 2])
        self.assert_no_restart_was_charged()

    def test_spare_of_a_job_that_succeeds_succeeds(self):
        jobs = self.start_agents("2", 2)
        self.wait_for_world(2)
        spare = self.start_agent("2")
        wait_until(lambda: "spare 1" in spare.stderr, "the third is told that it is a spare")
        self.be_done()
        self.assert_success([*jobs, spare])

    # ---- going ---------------------------------------------------------------

    def test_node_stopped_by_sigterm_the_others_go_on(self):
        jobs = self.start_agents("1:3", 3)
        first = self.wait_for_world(3)
        jobs[2].process.send_signal(signal.SIGTERM)
        self.assertEqual(jobs[2].wait().returncode, 128 + signal.SIGTERM, jobs[2].stderr)
        self.wait_for_world(2, later_than=first)
        self.be_done()
        self.assert_success(jobs[:2])
        self.assertEqual(self.worlds(), [3, 2])
        self.assert_no_restart_was_charged()

    def test_node_killed_the_others_go_on(self):
        jobs = self.start_agents("1:3", 3)
        first = self.wait_for_world(3)
        jobs[1].process.kill()
        self.wait_for_world(2, later_than=first)
        self.be_done()
        self.assert_success([jobs[0], jobs[2]])
        self.assertEqual(self.worlds(), [3, 2])
        self.assert_no_restart_was_charged()

    def test_node_leaves_and_returns_five_times(self):
        jobs = self.start_agents("1:2", 2)
        last = self.wait_for_world(2)
        for _ in range(5):
            jobs[1].process.send_signal(signal.SIGTERM)
            self.assertEqual(jobs[1].wait().returncode, 128 + signal.SIGTERM, jobs[1].stderr)
            last = self.wait_for_world(1, later_than=last)
            jobs[1] = self.start_agent("1:2")
            last = self.wait_for_world(2, later_than=last)
        self.be_done()
        self.assert_success(jobs)
        self.assertEqual(self.worlds(), [2] + [1, 2] * 5)
        self.assert_no_restart_was_charged()

    # ---- never two live rounds -----------------------------------------------

    def diary(self):
        """Rows of [word, round, rank, world, pid]."""
        try:
            return [line.split() for line in
                    pathlib.Path(self.path("diary")).read_text().splitlines()]
        except FileNotFoundError:
            return []

    def starts(self, world, later_than=0):
        """The round that all of a world have started in, once they have."""
        ranks = {}
        for word, number, rank, of, _ in self.diary():
            if word == "start" and int(of) == world and int(number) > later_than:
                ranks.setdefault(int(number), set()).add(rank)
        return next((number for number in ranks if len(ranks[number]) == world), None)

    def start_diarists(self):
        program = self.path("diary.py")
        pathlib.Path(program).write_text(DIARY)
        start = lambda: self.start_agent("1:2", program=program, conf=",last_call_timeout=2",
                                         heartbeat_timeout=3)
        jobs = [start()]
        wait_until(lambda: "1 of " in jobs[0].stderr, "the first agent waits for more")
        jobs.append(start())
        return jobs, start, wait_until(lambda: self.starts(2), "the first round of two")

    def test_node_killed_and_restarted_while_its_peer_computes(self):
        jobs, start, last = self.start_diarists()
        for _ in range(3):
            jobs[1].process.kill()
            jobs[1] = start()
            last = wait_until(lambda: self.starts(2, later_than=last), "a round of two again")
        self.be_done()
        self.assert_success(jobs)
        words = [row[0] for row in self.diary()]
        self.assertNotIn("overlap", words)
        self.assertGreaterEqual(words.count("start"), 8)

    def test_node_frozen_its_workers_end_before_the_others_go_on(self):
        jobs, start, last = self.start_diarists()
        jobs[1].process.send_signal(signal.SIGSTOP)
        last = wait_until(lambda: self.starts(1, later_than=last), "a round without it")
        self.assertEqual(len(self.workers_alive()), 1)
        jobs[1].process.send_signal(signal.SIGCONT)
        self.assertNotEqual(jobs[1].wait().returncode, 0)
        self.assertIn("ddlaunch: ", jobs[1].stderr)
        jobs[1] = start()
        wait_until(lambda: self.starts(2, later_than=last), "a round of two again")
        self.be_done()
        self.assert_success(jobs)
        self.assertNotIn("overlap", [row[0] for row in self.diary()])

    def test_node_frozen_for_less_than_the_limit_is_kept(self):
        jobs, _, last = self.start_diarists()
        jobs[1].process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # half the limit
        jobs[1].process.send_signal(signal.SIGCONT)
        time.sleep(1)  # let it have consequences
        self.be_done()
        self.assert_success(jobs)
        self.assertEqual({int(row[1]) for row in self.diary()}, {last})

    def workers_alive(self):
        return self.marked(RANK=0) + self.marked(RANK=1)

    # ---- failing and ending --------------------------------------------------

    def test_rank_that_always_fails_three_attempts_on_all_nodes(self):
        program = self.script("fail.sh", """
echo "$DDL_ROUND $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $GROUP_RANK $$" >> "$1/told"
[ "$RANK" = 1 ] || exec sleep 1000
until grep -q "^$DDL_ROUND 0 " "$1/told"; do sleep 0.02; done
exit 3
""")
        jobs = self.start_agents("2", 2, "--max-restarts=2", program=program)
        self.assertEqual([job.wait().returncode for job in jobs], [3, 3],
                         jobs[0].stderr + jobs[1].stderr)
        for rank in (0, 1):
            attempts = [one.restarts for one in self.told() if one.rank == rank]
            self.assertEqual(attempts, [0, 1, 2], f"rank {rank}")

    def test_worker_of_the_host_ends_first_the_other_node_is_served_on(self):
        program = self.script("host_first.sh", """
echo "$DDL_ROUND $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $GROUP_RANK $$" >> "$1/told"
[ "$RANK" = 0 ] || until [ -e "$1/done" ]; do sleep 0.02; done
""")
        host = self.start_agent("2", "--node-rank=0", "-v", program=program)
        wait_until(lambda: "1 of 2" in host.stderr, "the host waits for the other")
        other = self.start_agent("2", "--node-rank=1", program=program)
        self.wait_for_world(2)
        wait_until(lambda: "succeeded: 1 of 2" in host.stderr, "the coordinator knows")
        self.assertEqual((host.process.poll(), other.process.poll()), (None, None))
        self.be_done()
        self.assert_success([host, other])

    # ---- training goes on ----------------------------------------------------

    def final(self, path):
        lines = pathlib.Path(path).read_text().splitlines()
        return json.loads(lines[-1]) if lines else {}

    def steps(self, path):
        try:
            return len(pathlib.Path(path).read_text().splitlines())
        except FileNotFoundError:
            return 0

    def test_training_on_two_three_and_two_nodes_ends_as_undisturbed(self):
        calm, metrics = self.path("calm.jsonl"), self.path("metrics.jsonl")
        batch = "--global-batch-size=48"
        self.assertEqual(self.launch("--nproc-per-node=2", batch, TRAIN_BIN, "--epochs=6",
                                     "--metrics-out", calm).returncode, 0)
        args = ["--epochs=6", "--metrics-out", metrics, "--checkpoint-dir", self.path("ckpt"),
                "--checkpoint-every=10", "--step-delay-ms=20"]
        node = dict(program=TRAIN_BIN, args=args, conf=",last_call_timeout=1")
        jobs = self.start_agents("2:3", 2, batch, **node)
        wait_until(lambda: self.steps(metrics) >= 40, "step 40 on two nodes")
        third = self.start_agent("2:3", batch, **node)
        wait_until(lambda: "world size 3 (was 2)" in jobs[0].stderr, "the round of three")
        seen = self.steps(metrics)
        wait_until(lambda: self.steps(metrics) >= seen + 30, "thirty steps on three nodes")
        third.process.send_signal(signal.SIGTERM)
        self.assertEqual(third.wait().returncode, 128 + signal.SIGTERM, third.stderr)
        self.assert_success(jobs)
        self.assertIn("world size 2 (was 3)", jobs[0].stderr)
        expected, final = self.final(calm), self.final(metrics)
        self.assertEqual(final["steps"], expected["steps"])
        self.assertEqual(final["restart_count"], 0)
        self.assertAlmostEqual(final["accuracy"], expected["accuracy"], delta=0.01)


if __name__ == "__main__":
    unittest.main()
