"""Two ddlaunch as two nodes of one job, meeting on loopback."""

import os
import pathlib
import signal
import unittest

from harness import E2eTest, free_port, wait_until


class TwoNodesTest(E2eTest):
    def nodes(self, script, *flags, per_node=((), ())):
        self.port = free_port()
        endpoint = f"127.0.0.1:{self.port}"
        common = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                  "--rdzv-id=j", "--nproc_per_node=2", *flags]
        return [self.start(*common, *own, script, self.dir) for own in per_node]

    def test_ranks_are_one_world(self):
        script = self.script("say.sh", 'echo "$RANK of $WORLD_SIZE on $GROUP_RANK"\n')
        jobs = [job.wait() for job in self.nodes(script)]
        self.assertEqual([job.returncode for job in jobs], [0, 0], jobs[0].stderr + jobs[1].stderr)
        lines = sorted(line.split(":", 1)[1] for job in jobs for line in job.stdout.splitlines())
        self.assertEqual(lines, ["0 of 4 on 0", "1 of 4 on 0", "2 of 4 on 1", "3 of 4 on 1"])

    def test_node_rank_is_honoured(self):
        script = self.script("say.sh", 'echo "$RANK"\n')
        jobs = self.nodes(script, per_node=(["--node-rank=1"], ["--node-rank=0"]))
        self.assertEqual([job.wait().returncode for job in jobs], [0, 0])
        self.assertIn(":2", jobs[0].stdout)
        self.assertIn(":0", jobs[1].stdout)

    def test_given_master_port_is_the_workers_where_the_nodes_meet_elsewhere(self):
        script = self.script("say.sh", 'echo "port $MASTER_PORT"\n')
        meet, master = free_port(), free_port()
        jobs = [self.start("--nnodes=2", f"--node-rank={rank}", "--master-addr=127.0.0.1",
                           f"--rdzv-endpoint=127.0.0.1:{meet}", f"--master-port={master}", script)
                for rank in range(2)]
        for job in jobs:
            self.assertEqual(job.wait().returncode, 0, job.stderr)
            self.assertIn(f"port {master}", job.stdout)

    def test_two_claims_to_one_node_rank_are_refused(self):
        script = self.script("sleep.sh", 'exit 0\n')
        jobs = self.nodes(script, "--rdzv-conf=join_timeout=3",
                          per_node=(["--node-rank=0"], ["--node-rank=0"]))
        codes = [job.wait().returncode for job in jobs]
        self.assertNotIn(0, codes)
        self.assertIn("--node-rank=0 is claimed twice", jobs[0].stderr + jobs[1].stderr)

    def test_failure_on_one_node_ends_both_with_its_code(self):
        script = self.script("fail.sh", 'test "$RANK" = 3 && exit 5; sleep 600\n')
        jobs = [job.wait() for job in self.nodes(script)]
        self.assertEqual([job.returncode for job in jobs], [5, 5], jobs[0].stderr + jobs[1].stderr)
        for job in jobs:
            self.assertRegex(job.stderr, r"rank\s*:\s*3 ")
        self.assert_nothing_left()

    def test_rank_that_raised_is_named_by_all_not_those_that_it_broke(self):
        script = self.path("broken.py")
        pathlib.Path(script).write_text("""
import atexit, os, socket, time
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
if rank == 2:  # the one that all others are connected to
    server = socket.create_server(("127.0.0.1", port))
    peers = [server.accept()[0] for _ in range(3)]
    def take_down():
        for peer in peers:
            peer.close()
        time.sleep(0.3)
    atexit.register(take_down)  # after the traceback
    raise ValueError("the sample is broken")
while True:
    try:
        peer = socket.create_connection(("127.0.0.1", port))
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
if not peer.recv(1):
    raise ConnectionError("the collective is broken")
""")
        jobs = [job.wait() for job in self.nodes(script, "--worker-store")]
        self.assertEqual([job.returncode for job in jobs], [1, 1], jobs[0].stderr + jobs[1].stderr)
        for job in jobs:
            cause = job.stderr[job.stderr.index("Root Cause"):]
            self.assertRegex(cause, r"rank\s*:\s*2 ")
            self.assertIn("ValueError: the sample is broken", cause)

    def test_restart_is_common(self):
        script = self.script("retry.sh", 'echo "$TORCHELASTIC_RESTART_COUNT"\n'
                             'test "$RANK$TORCHELASTIC_RESTART_COUNT" = 30 && exit 5\n'
                             'test "$TORCHELASTIC_RESTART_COUNT" = 1 || sleep 600\n')
        jobs = [job.wait() for job in self.nodes(script, "--max-restarts=1")]
        self.assertEqual([job.returncode for job in jobs], [0, 0], jobs[0].stderr + jobs[1].stderr)
        for job in jobs:
            self.assertEqual(sum(line.endswith(":1") for line in job.stdout.splitlines()), 2)

    def test_different_plans_are_refused_and_named(self):
        script = self.script("sleep.sh", "exit 0\n")
        jobs = self.nodes(script, "--rdzv-conf=join_timeout=3",
                          per_node=(["--global-batch-size=64"], ["--global-batch-size=48"]))
        codes = [job.wait().returncode for job in jobs]
        self.assertIn(2, codes)
        self.assertNotIn(0, codes)
        text = jobs[codes.index(2)].stderr
        self.assertIn("64", text)
        self.assertIn("48", text)

    def test_ctrl_c_on_one_node_ends_both(self):
        script = self.script("up.sh", 'touch "$1/up-$RANK"; sleep 600\n')
        jobs = self.nodes(script)
        self.wait_for_ranks(4)
        jobs[1].process.send_signal(signal.SIGINT)
        self.assertEqual([job.wait().returncode for job in jobs], [130, 130],
                         jobs[0].stderr + jobs[1].stderr)
        self.assert_nothing_left()

    def test_kill_9_of_the_host_ends_the_other(self):
        script = self.script("up.sh", 'touch "$1/up-$RANK"; sleep 600\n')
        jobs = self.nodes(script)
        self.wait_for_ranks(4)
        # Whoever hosts the coordinator listens; kill that one.
        host = next(job for job in jobs if self.listens(job))
        other = jobs[1 - jobs.index(host)]
        host.process.kill()
        self.assertNotEqual(other.wait().returncode, 0)
        self.assertIn("lost the coordinator", other.stderr)
        self.assert_nothing_left()

    def test_host_that_is_frozen_is_noticed_and_its_round_is_left(self):
        script = self.script("up.sh", 'touch "$1/up-$RANK"; sleep 600\n')
        jobs = self.nodes(script, "--rdzv-conf=heartbeat_timeout=2")
        self.wait_for_ranks(4)
        host = next(job for job in jobs if self.listens(job))
        other = jobs[1 - jobs.index(host)]
        host.process.send_signal(signal.SIGSTOP)
        self.assertNotEqual(other.wait().returncode, 0)
        self.assertIn("lost the coordinator", other.stderr)
        for rank in (0, 1, 2, 3):
            alive = self.marked(RANK=rank)
            self.assertEqual(bool(alive), rank in self.ranks_of(host), f"rank {rank}")
        host.process.send_signal(signal.SIGCONT)

    def test_missing_node_is_named_after_the_join_timeout(self):
        script = self.script("never.sh", 'touch "$1/never"\n')
        job = self.start("--nnodes=2", "--rdzv-backend=c10d",
                         f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=lonely",
                         "--rdzv-conf=join_timeout=1", script, self.dir).wait()
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("1 of 2", job.stderr)

    def wait_for_ranks(self, world):
        for rank in range(world):
            wait_until(lambda: os.path.exists(self.path(f"up-{rank}")), f"rank {rank} is up")

    def sockets_of(self, job):
        """Inode numbers of the process's sockets."""
        found = set()
        for fd in os.listdir(f"/proc/{job.process.pid}/fd"):
            try:
                target = os.readlink(f"/proc/{job.process.pid}/fd/{fd}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found.add(target[len("socket:["):-1])
        return found

    def ranks_of(self, job):
        """The living ranks whose gateway this process serves."""
        own = self.sockets_of(job)
        table = pathlib.Path("/proc/net/unix").read_text().splitlines()
        paths = {line.split()[-1] for line in table if "gateway.sock" in line
                 and line.split()[6] in own}
        return {rank for rank in range(4) for pid in self.marked(RANK=rank)
                if any(f"=unix:{path}\0" in pathlib.Path(f"/proc/{pid}/environ").read_text()
                       for path in paths)}

    def listens(self, job):
        """Whether the process listens at the endpoint's port."""
        own, listening, port = self.sockets_of(job), "0A", f":{self.port:04X}"
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if (fields[3] == listening and fields[1].endswith(port) and
                        fields[9] in own):
                    return True
        return False


if __name__ == "__main__":
    unittest.main()
