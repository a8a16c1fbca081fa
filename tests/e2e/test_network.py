"""Two hosts of a real network meet: addresses, names, interfaces."""

import signal
import unittest

import netns
from harness import E2eTest, wait_until

PORT = 29400

# Rank 0 itself listens at the address that all were given; each other rank connects to
# it. So the address is one of rank 0's host, and the others reach it.
MEET = """
import os, socket, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
if rank == 0:
    with socket.create_server((address, port), family=family) as server:
        for _ in range(world - 1):
            server.accept()[0].close()
else:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
print("master", address)
"""


# Every rank finds PyTorch's store there, served by rank 0's ddlaunch.
FIND_STORE = """
import os, socket, struct
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
with socket.create_connection((address, port), timeout=20) as store:
    ping = bytes([13]) + struct.pack("=I", 4711)
    store.sendall(bytes([0]) + struct.pack("=I", 0x3C85F7CE) + ping)
    assert store.recv(4, socket.MSG_WAITALL) == ping[1:]
print("master", address)
"""


class NetworkTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.network = netns.Network()
        self.addCleanup(self.network.close)
        self.started = 0
        self.meet_py = self.path("meet.py")
        with open(self.meet_py, "w", encoding="ascii") as file:
            file.write(MEET)

    def start_node(self, host, endpoint, *flags, nnodes=2):
        """The first one has node rank 0, unless the flags say otherwise."""
        rank = self.started
        self.started += 1
        return self.start(f"--node-rank={rank}",
                          f"--nnodes={nnodes}", "--rdzv-backend=c10d", "--rdzv-id=j", "--worker-store",
                          f"--rdzv-endpoint={endpoint}", "--rdzv-conf=join_timeout=30", "-q", *flags,
                          self.meet_py, prefix=host.prefix)

    def assert_meet(self, jobs, master):
        for job in jobs:
            job.wait(25)  # less than it would take to give up
        said = "\n".join(f"{job.stdout}{job.stderr}" for job in jobs)
        self.assertEqual([job.returncode for job in jobs], [0] * len(jobs), said)
        for job in jobs:
            self.assertIn(f"master {master}\n", job.stdout, said)
        # The one word is that anybody on the network can join.
        lines = [line for job in jobs for line in job.stderr.splitlines()]
        self.assertLessEqual(len(lines), 1, said)

    def test_ipv4(self):
        a = self.network.host("a", "10.77.0.1/24")
        b = self.network.host("b", "10.77.0.2/24")
        jobs = [self.start_node(host, f"10.77.0.1:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "10.77.0.1")

    def test_store_is_served_at_the_address_of_rank_zeros_host(self):
        a = self.network.host("a", "10.77.0.1/24")
        b = self.network.host("b", "10.77.0.2/24")
        find_py = self.path("find.py")
        with open(find_py, "w", encoding="ascii") as file:
            file.write(FIND_STORE)
        jobs = [self.start(f"--node-rank={rank}", "--nnodes=2", "--rdzv-backend=c10d",
                           "--rdzv-id=j", f"--rdzv-endpoint=10.77.0.1:{PORT}", "-q", find_py,
                           prefix=host.prefix)
                for rank, host in enumerate((b, a))]
        self.assert_meet(jobs, "10.77.0.2")

    def test_the_node_that_does_not_host_comes_first(self):
        a = self.network.host("a", "10.77.0.1/24")
        b = self.network.host("b", "10.77.0.2/24")
        jobs = [self.start_node(host, f"10.77.0.1:{PORT}", f"--node-rank={rank}")
                for rank, host in enumerate((b, a))]
        self.assert_meet(jobs, "10.77.0.2")

    def test_ipv6_and_no_ipv4(self):
        a = self.network.host("a", "fd00::1/64")
        b = self.network.host("b", "fd00::2/64")
        for host in (a, b):
            host.ip("address", "del", "127.0.0.1/8", "dev", "lo")
        jobs = [self.start_node(host, f"[fd00::1]:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "fd00::1")

    def test_name_of_both_families_and_ipv6_disabled_on_a_client(self):
        hosts = "fd00::1 head\n10.77.0.1 head\n"
        a = self.network.host("a", "10.77.0.1/24", "fd00::1/64", hosts=hosts)
        b = self.network.host("b", "10.77.0.2/24", hosts=hosts)
        b.sysctl("net/ipv6/conf/all/disable_ipv6", 1)
        jobs = [self.start_node(host, f"head:{PORT}", f"--node-rank={rank}")
                for rank, host in enumerate((b, a))]
        self.assert_meet(jobs, "10.77.0.2")

    def test_name_of_both_families_and_ipv6_disabled_on_the_host(self):
        hosts = "fd00::1 head\n10.77.0.1 head\n"
        a = self.network.host("a", "10.77.0.1/24", hosts=hosts)
        b = self.network.host("b", "10.77.0.2/24", "fd00::2/64", hosts=hosts)
        a.sysctl("net/ipv6/conf/all/disable_ipv6", 1)
        jobs = [self.start_node(host, f"head:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "10.77.0.1")

    def test_name_whose_first_address_swallows_all_packets(self):
        a = self.network.host("a", "10.77.0.1/24", "2001:db8::1/64",
                              hosts="10.77.0.1 head\n")
        b = self.network.host("b", "10.77.0.2/24", "2001:db8::2/64",
                              hosts="2001:db8:99::1 head\n10.77.0.1 head\n")
        b.ip("-6", "route", "add", "2001:db8:99::/64", "via", "2001:db8::1")  # which drops them
        jobs = [self.start_node(host, f"head:{PORT}", "--node-rank", rank)
                for rank, host in enumerate((a, b))]
        self.assert_meet(jobs, "10.77.0.1")

    def test_name_whose_first_address_is_dead_the_other_way_is_advertised(self):
        hosts = "2001:db8::1 head\n10.77.0.1 head\n"
        a = self.network.host("a", "10.77.0.1/24", hosts="10.77.0.1 head\n")
        b = self.network.host("b", "10.77.0.2/24", "2001:db8::2/64", hosts=hosts)
        jobs = [self.start_node(host, f"head:{PORT}", "--node-rank", rank)
                for rank, host in enumerate((b, a))]
        self.assert_meet(jobs, "10.77.0.2")

    def test_own_name_maps_to_127_0_1_1_where_it_is_hosted(self):
        a = self.network.host("a", "10.77.0.1/24", hosts="127.0.1.1 head\n", hostname="head")
        b = self.network.host("b", "10.77.0.2/24", hosts="10.77.0.1 head\n")
        a.ip("route", "add", "default", "via", "10.77.0.254")
        jobs = [self.start_node(host, f"head:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "10.77.0.1")

    def test_own_name_maps_to_127_0_1_1_and_there_is_no_default_route(self):
        a = self.network.host("a", "10.77.0.1/24", hosts="127.0.1.1 head\n", hostname="head")
        b = self.network.host("b", "10.77.0.2/24", hosts="10.77.0.1 head\n")
        jobs = [self.start_node(host, f"head:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "10.77.0.1")

    def test_own_names_that_nobody_can_resolve(self):
        a = self.network.host("a", "10.77.0.1/24", hostname="nowhere-1")
        b = self.network.host("b", "10.77.0.2/24", hostname="nowhere-2")
        jobs = [self.start_node(host, f"10.77.0.1:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "10.77.0.1")

    def test_endpoint_that_nobody_can_resolve_is_named(self):
        a = self.network.host("a", "10.77.0.1/24")
        job = self.start_node(a, f"no-such-head:{PORT}", "--rdzv-conf=join_timeout=1").wait(25)
        self.assertNotEqual(job.returncode, 0)
        self.assert_one_line_error(job, "no-such-head")

    def test_endpoint_that_resolves_only_later(self):
        a = self.network.host("a", "10.77.0.1/24")
        b = self.network.host("b", "10.77.0.2/24", hosts="10.77.0.1 head\n")
        jobs = [self.start("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=head:{PORT}",
                           "--rdzv-conf=join_timeout=60", "--worker-store", self.meet_py, prefix=host.prefix)
                for host in (a, b)]
        wait_until(lambda: "still looking up" in jobs[0].stderr, "it says what it waits for")
        a.etc("hosts", "127.0.0.1 localhost\n10.77.0.1 head\n")
        for job in jobs:
            self.assertEqual(job.wait().returncode, 0, job.stderr)
            self.assertIn("master 10.77.0.1\n", job.stdout)

    def test_ctrl_c_while_the_endpoint_does_not_resolve(self):
        a = self.network.host("a", "10.77.0.1/24")
        job = self.start("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=no-such-head",
                         self.meet_py, prefix=a.prefix)
        wait_until(lambda: "still looking up" in job.stderr, "it waits")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(5).returncode, 130)
        self.assertIn("stopped by SIGINT", job.stderr)

    def test_two_interfaces_the_routed_one_is_advertised(self):
        a = self.network.host("a", "10.77.0.1/24")
        b = self.network.host("b", "192.168.9.2/24")
        b.add_interface("10.77.0.2/24")
        jobs = [self.start_node(host, f"10.77.0.1:{PORT}", f"--node-rank={rank}")
                for rank, host in enumerate((b, a))]
        self.assert_meet(jobs, "10.77.0.2")

    def test_local_addr_overrides(self):
        a = self.network.host("a", "10.77.0.1/24", "10.88.0.1/24")
        b = self.network.host("b", "10.77.0.2/24")
        b.add_interface("10.88.0.2/24")
        job_b = self.start_node(b, f"10.77.0.1:{PORT}", "--node-rank=0", "--local-addr=10.88.0.2")
        job_a = self.start_node(a, f"10.77.0.1:{PORT}", "--node-rank=1")
        self.assert_meet([job_a, job_b], "10.88.0.2")

    def test_thin_line_is_no_loss(self):
        a = self.network.host("a", "10.77.0.1/24")
        b = self.network.host("b", "10.77.0.2/24")
        a.throttle("64kbit")
        b.throttle("64kbit")
        jobs = [self.start_node(host, f"10.77.0.1:{PORT}") for host in (a, b)]
        self.assert_meet(jobs, "10.77.0.1")


if __name__ == "__main__":
    netns.skip_without_rights()
    unittest.main()
