"""Agents that are killed or frozen, and what else comes to the coordinator's
port: garbage, strangers, another job."""

import os
import random
import signal
import socket
import threading
import time
import unittest

from harness import UNTIL_DONE, E2eTest, free_port, wait_until


class RendezvousTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.program = self.script("until_done.sh", UNTIL_DONE)
        self.port = free_port()

    def start_node(self, nnodes, *flags, heartbeat_timeout=3, join_timeout=30, rdzv_id="j"):
        return self.start(f"--nnodes={nnodes}", "--rdzv-backend=c10d", f"--rdzv-id={rdzv_id}",
                          f"--rdzv-endpoint=127.0.0.1:{self.port}", "--shutdown-timeout=5",
                          f"--rdzv-conf=join_timeout={join_timeout},"
                          f"heartbeat_timeout={heartbeat_timeout}",
                          *flags, self.program, self.dir, f"done-{rdzv_id}")

    def start_host(self, nnodes, **kwargs):
        """The node that hosts the coordinator, and so comes first."""
        job = self.start_node(nnodes, **kwargs)
        wait_until(self.somebody_listens, "the coordinator listens")
        return job

    def somebody_listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def start_nodes(self, nnodes, **kwargs):
        jobs = [self.start_host(nnodes, **kwargs)]
        jobs += [self.start_node(nnodes, **kwargs) for _ in range(nnodes - 1)]
        self.wait_for_world(nnodes)
        return jobs

    def assert_success(self, jobs):
        said = "\n----\n".join(job.wait().stderr for job in jobs)
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), said)

    # ---- killed ---------------------------------------------------------------

    def test_host_of_the_coordinator_killed_the_others_leave_and_say_why(self):
        jobs = self.start_nodes(3)
        jobs[0].process.kill()
        for job in jobs[1:]:
            self.assertNotEqual(job.wait(20).returncode, 0)
            self.assertIn("lost the coordinator", job.stderr)
        self.assert_nothing_left()

    def test_node_killed_and_another_started_at_once(self):
        jobs = self.start_nodes(2)
        jobs[1].process.kill()
        jobs[1].wait()
        jobs[1] = self.start_node(2)
        self.wait_for_world(2, later_than=1)
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual({one.restarts for one in self.told()}, {0})
        self.assertEqual({one.round for one in self.told()}, {1, 2})

    # ---- frozen ---------------------------------------------------------------

    def test_frozen_for_half_the_limit_is_kept(self):
        jobs = self.start_nodes(2, heartbeat_timeout=6)
        jobs[1].process.send_signal(signal.SIGSTOP)
        time.sleep(3)  # half the limit is what this is about
        jobs[1].process.send_signal(signal.SIGCONT)
        time.sleep(1)  # let it have consequences
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual({one.round for one in self.told()}, {1})

    def test_frozen_for_longer_is_replaced_and_leaves_when_it_goes_on(self):
        jobs = self.start_nodes(2)
        frozen = jobs[1]
        frozen.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: "was lost" in jobs[0].stderr, "the loss is noticed")
        jobs[1] = self.start_node(2)
        self.wait_for_world(2, later_than=1)
        for rank in (0, 1):  # never two owners of a rank
            self.assertEqual(self.marked(RANK=rank, DDL_ROUND=1), [])
        frozen.process.send_signal(signal.SIGCONT)
        self.assertNotEqual(frozen.wait().returncode, 0)
        self.assertIn("ddlaunch: ", frozen.stderr)
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual({one.round for one in self.told()}, {1, 2})

    # ---- what else comes to the port -----------------------------------------

    def test_scans_and_garbage_disturb_no_job(self):
        host = self.start_host(2)
        over = threading.Event()
        done = [0]
        scanner = threading.Thread(target=self.scan, args=(over, done))
        scanner.start()
        self.addCleanup(scanner.join)
        self.addCleanup(over.set)
        wait_until(lambda: done[0] > 50, "the scan goes on")
        jobs = [host, self.start_node(2)]
        self.wait_for_world(2)
        before = done[0]
        wait_until(lambda: done[0] > before + 200, "the scan goes on")
        self.be_done("done-j")
        self.assert_success(jobs)
        self.assertEqual({one.round for one in self.told()}, {1})
        for job in jobs:
            self.assertLess(len(job.stderr.splitlines()), 10, job.stderr)

    def scan(self, over, done):
        rng = random.Random(1)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        payloads = [b"", b"\0", b"GET / HTTP/1.0\r\n\r\n", rng.randbytes(5000),
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
                    preface, preface + b"\xff" * 64,
                    preface + b"\0\0\0\4\0\0\0\0\0" + b"\xff\xff\xff\1\5"]
        kept = []
        while not over.is_set():
            payload = rng.choice(payloads)
            try:
                peer = socket.create_connection(("127.0.0.1", self.port), timeout=1)
                peer.sendall(payload)
                if len(kept) < 50 and rng.random() < 0.3:
                    kept.append(peer)  # says no more, for ever
                else:
                    if rng.random() < 0.5:
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    peer.close()
            except OSError:
                pass  # the job is over, or it hung up on us
            done[0] += 1
            over.wait(0.001)
        for peer in kept:
            peer.close()

    def test_stranger_at_the_port_is_named(self):
        for answer in (None, b"HTTP/1.0 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"):
            with self.subTest(answer=answer):
                with socket.create_server(("127.0.0.1", self.port)) as stranger:
                    over = threading.Event()
                    thread = threading.Thread(target=self.serve, args=(stranger, answer, over))
                    thread.start()
                    job = self.start_node(2, join_timeout=300).wait(30)
                    over.set()
                    thread.join()
                self.assertNotEqual(job.returncode, 0)
                self.assertIn(f"127.0.0.1:{self.port}", job.stderr)
                self.assertEqual(self.told(), [])

    @staticmethod
    def serve(server, answer, over):
        server.settimeout(0.1)
        peers = []
        while not over.is_set():
            try:
                peers.append(server.accept()[0])
                if answer is not None:
                    peers[-1].sendall(answer)
            except OSError:
                continue
        for peer in peers:
            peer.close()

    def test_twenty_standalone_jobs_at_once(self):
        program = self.script("world.sh", 'echo "$RANK of $WORLD_SIZE"\n')
        jobs = [self.start("--standalone", "--nproc-per-node=2", program) for _ in range(20)]
        self.assert_success(jobs)
        for job in jobs:
            self.assertEqual(sorted(job.stdout.splitlines()),
                             ["[default0]:0 of 2", "[default1]:1 of 2"])

    def test_two_ids_at_one_endpoint_each_is_told_of_the_other(self):
        jobs = [self.start_host(2, rdzv_id="red", join_timeout=2),
                self.start_node(2, rdzv_id="blue", join_timeout=2)]
        for job, other in zip(jobs, ("blue", "red")):
            self.assertNotEqual(job.wait(30).returncode, 0)
            self.assertIn("1 of 2", job.stderr)
            self.assertIn(other, job.stderr)
        self.assertEqual(self.told(), [])

    def test_second_job_at_the_first_ones_own_coordinator_is_refused_and_harms_nothing(self):
        first = [self.start_host(2, rdzv_id="red"), self.start_node(2, rdzv_id="red")]
        self.wait_for_world(2)
        second = [self.start_node(2, rdzv_id="blue") for _ in range(2)]
        for job in second:
            self.assertEqual(job.wait().returncode, 2, job.stderr)
            self.assertIn("red", job.stderr)
        self.be_done("done-red")
        self.assert_success(first)
        self.assertEqual(len(self.told()), 2)

    def test_two_nodes_and_no_endpoint_asks_for_one(self):
        job = self.start("--nnodes=2", self.program, self.dir).wait(20)
        self.assertEqual(job.returncode, 2)
        self.assertIn("--rdzv-endpoint", job.stderr)
        self.assertEqual(self.told(), [])


if __name__ == "__main__":
    unittest.main()
