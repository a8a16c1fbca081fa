"""Cables that are pulled, and links that carry one way only, in mid-run."""

import signal
import time
import unittest

import netns
from harness import UNTIL_DONE, E2eTest, wait_until

ENDPOINT = "10.77.0.1:29400"


class PartitionTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.network = netns.Network()
        self.addCleanup(self.network.close)
        self.program = self.script("until_done.sh", UNTIL_DONE)

    def hosts(self, count):
        """The first one will host the coordinator."""
        return [self.network.host(name, f"10.77.0.{number}/24")
                for number, name in enumerate("abcdef"[:count], 1)]

    def start_node(self, host, nnodes, heartbeat_timeout=2, join_timeout=30):
        return self.start(f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=j",
                          f"--rdzv-endpoint={ENDPOINT}", "--shutdown-timeout=5",
                          f"--rdzv-conf=join_timeout={join_timeout},"
                          f"heartbeat_timeout={heartbeat_timeout}",
                          self.program, self.dir, prefix=host.prefix)

    def start_nodes(self, hosts, **kwargs):
        jobs = [self.start_node(host, len(hosts), **kwargs) for host in hosts]
        self.wait_for_world(len(hosts))
        return jobs

    @staticmethod
    def is_alive(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
        except OSError:
            return False

    def said(self, jobs):
        return "\n----\n".join(job.stderr for job in jobs)

    def assert_cut_off_node_leaves(self, cut_job, told_before):
        """It ends by itself, and none of its workers lives on."""
        cut_job.wait()
        self.assertNotEqual(cut_job.returncode, 0)
        self.assertIn("lost the coordinator", cut_job.stderr)
        for pid in told_before:
            self.assertFalse(self.is_alive(pid), f"worker {pid} of the node that was cut off")

    def worker_pids(self, job):
        """Pids of the workers below one ddlaunch, which runs some."""
        own = set(self.descendants(job.process.pid))
        pids = [one.pid for one in self.told() if one.pid in own]
        self.assertTrue(pids)
        return pids

    @staticmethod
    def descendants(root):
        found = [root]
        for pid in found:
            try:
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                    found += map(int, file.read().split())
            except OSError:
                continue
        return found

    def test_cable_out_both_sides_know_and_a_new_agent_takes_the_place(self):
        a, b = self.hosts(2)
        jobs = self.start_nodes([a, b])
        first_round = self.told()[0].round
        pids_b = self.worker_pids(jobs[1])
        b.unplug()
        self.assert_cut_off_node_leaves(jobs[1], pids_b)
        wait_until(lambda: not self.marked(RANK=0) and not self.marked(RANK=1),
                   "the rest of the old round is stopped")
        self.assertIsNone(jobs[0].process.poll(), jobs[0].stderr)
        b.plug()
        again = self.start_node(b, 2)
        self.wait_for_world(2, later_than=first_round)
        self.be_done()
        self.assertEqual([job.wait().returncode for job in (jobs[0], again)], [0, 0],
                         self.said([*jobs, again]))
        self.assertEqual({one.restarts for one in self.told()}, {0})

    def test_cable_out_and_nobody_comes(self):
        a, b = self.hosts(2)
        jobs = self.start_nodes([a, b], join_timeout=3)
        pids_b = self.worker_pids(jobs[1])
        b.unplug()
        self.assert_cut_off_node_leaves(jobs[1], pids_b)
        self.assertNotEqual(jobs[0].wait().returncode, 0)
        self.assertIn("1 of 2", jobs[0].stderr)
        self.assertIn("b", jobs[0].stderr)
        self.assert_nothing_left()

    def test_cable_out_of_a_node_of_an_elastic_job_the_rest_goes_on(self):
        hosts = self.hosts(3)
        jobs = [self.start_node(host, "1:3") for host in hosts]
        first = self.wait_for_world(3)
        pids_c = self.worker_pids(jobs[2])
        hosts[2].unplug()
        second = self.wait_for_world(2, later_than=first)
        for pid in pids_c:
            self.assertFalse(self.is_alive(pid), "the rest went on before it had stopped")
        self.assert_cut_off_node_leaves(jobs[2], pids_c)
        hosts[2].plug()
        jobs[2] = self.start_node(hosts[2], "1:3")
        self.wait_for_world(3, later_than=second)
        self.be_done()
        self.assertEqual([job.wait().returncode for job in jobs], [0, 0, 0], self.said(jobs))
        self.assertEqual({one.restarts for one in self.told()}, {0})

    def test_cable_out_for_a_moment_is_no_loss(self):
        a, b = self.hosts(2)
        jobs = self.start_nodes([a, b], heartbeat_timeout=8)
        b.unplug()
        time.sleep(1.5)  # the outage itself
        b.plug()
        time.sleep(2)  # let it have consequences
        self.be_done()
        self.assertEqual([job.wait().returncode for job in jobs], [0, 0], self.said(jobs))
        self.assertEqual(len(self.told()), 2)

    def test_cable_out_of_the_host_of_the_coordinator(self):
        hosts = self.hosts(3)
        jobs = self.start_nodes(hosts, join_timeout=3)
        others = [(job, self.worker_pids(job)) for job in jobs[1:]]
        hosts[0].unplug()
        for job, pids in others:
            self.assert_cut_off_node_leaves(job, pids)
        self.assertNotEqual(jobs[0].wait().returncode, 0)
        self.assertIn("1 of 3", jobs[0].stderr)
        self.assert_nothing_left()

    def test_node_that_hears_but_is_not_heard(self):
        a, b = self.hosts(2)
        jobs = self.start_nodes([a, b], join_timeout=3)
        pids_b = self.worker_pids(jobs[1])
        b.ip("route", "add", "blackhole", "10.77.0.1/32")
        self.assert_cut_off_node_leaves(jobs[1], pids_b)
        self.assertNotEqual(jobs[0].wait().returncode, 0)
        self.assert_nothing_left()

    def test_node_that_is_heard_but_does_not_hear(self):
        a, b = self.hosts(2)
        jobs = self.start_nodes([a, b], join_timeout=3)
        pids_b = self.worker_pids(jobs[1])
        a.ip("route", "add", "blackhole", "10.77.0.2/32")
        self.assert_cut_off_node_leaves(jobs[1], pids_b)
        self.assertNotEqual(jobs[0].wait().returncode, 0)
        self.assert_nothing_left()

    def test_frozen_and_cut_off_cannot_act_in_the_old_round(self):
        a, b = self.hosts(2)
        jobs = self.start_nodes([a, b])
        first_round = self.told()[0].round
        jobs[1].process.send_signal(signal.SIGSTOP)
        b.unplug()
        wait_until(lambda: "was lost" in jobs[0].stderr, "the loss is noticed")
        b.plug()
        again = self.start_node(b, 2)
        second_round = self.wait_for_world(2, later_than=first_round)
        jobs[1].process.send_signal(signal.SIGCONT)
        self.assertNotEqual(jobs[1].wait().returncode, 0)
        self.assertIn("ddlaunch: ", jobs[1].stderr)
        self.be_done()
        self.assertEqual([job.wait().returncode for job in (jobs[0], again)], [0, 0],
                         self.said([*jobs, again]))
        self.assertEqual({one.round for one in self.told()}, {first_round, second_round})


if __name__ == "__main__":
    netns.skip_without_rights()
    unittest.main()
