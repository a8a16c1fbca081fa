"""PyTorch's store at MASTER_ADDR:MASTER_PORT, served by the node of rank 0."""

import os
import pathlib
import re
import resource
import signal
import socket
import unittest

from harness import E2eTest, free_port, wait_until

# A client of the store as PyTorch 2.x has it, enough of it. After it the worker's
# own lines.
CLIENT = """
import os, pathlib, socket, struct, sys, time

class Store:
    def __init__(self, address=None):
        where = (address or os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self.socket = socket.create_connection(where, timeout=30)
        self.socket.sendall(b"\\0" + struct.pack("=I", 0x3C85F7CE))
    def text(self, text):
        return struct.pack("=Q", len(text)) + text.encode()
    def read(self, count):
        got = b""
        while len(got) < count:
            got += self.socket.recv(count - len(got)) or sys.exit("the store has gone")
        return got
    def ping(self):
        self.socket.sendall(b"\\x0d" + struct.pack("=I", 4711))
        assert self.read(4) == struct.pack("=I", 4711)
    def add(self, key):
        self.socket.sendall(b"\\x04" + self.text(key) + struct.pack("=q", 1))
        return struct.unpack("=q", self.read(8))[0]

rank, here = int(os.environ["RANK"]), pathlib.Path(sys.argv[1])
"""


class StoreTest(E2eTest):
    def program(self, lines):
        path = self.path("client.py")
        pathlib.Path(path).write_text(CLIENT + lines)
        return path

    def run_alone(self, lines, *flags, env=None, nproc=1, limits=None):
        more = {}
        if limits is not None:
            more["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        job = self.launch(f"--nproc-per-node={nproc}", *flags, self.program(lines), self.dir,
                          env=env, **more)
        self.assertEqual(job.returncode, 0, job.stderr)
        return job

    def test_is_there_before_the_workers_and_for_this_host_only(self):
        job = self.run_alone("""
Store().ping()
port = f":{int(os.environ['MASTER_PORT']):04X}"
for table in ("tcp", "tcp6"):
    for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state == "0A" and local.endswith(port):
            print("listens at", local.split(":")[0])
""")
        self.assertRegex(job.stdout, r"^\S*listens at 0100007F\n$")

    def test_each_round_has_a_new_one(self):
        # At the user's port too, which stays the same.
        port = free_port()
        for flags in ([], [f"--master-port={port}"]):
            with self.subTest(flags):
                job = self.run_alone("""
print(Store().add("rounds"), "at", os.environ["MASTER_PORT"])
sys.exit(int(os.environ["TORCHELASTIC_RESTART_COUNT"]) < 2)
""", "--max-restarts=2", *flags)
                said = re.findall(r"(\d+) at (\d+)", job.stdout)
                self.assertEqual([count for count, _ in said], ["1", "1", "1"])
                ports = {one for _, one in said}
                self.assertEqual(ports == {str(port)}, bool(flags))

    def test_users_port_in_use_is_an_error_that_names_it(self):
        with socket.create_server(("127.0.0.1", 0)) as stranger:
            port = stranger.getsockname()[1]
            job = self.launch(f"--master-port={port}", "/bin/true")
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, f"--master-port={port}", "in use", "give another")

    def test_more_connections_than_the_soft_limit_of_open_files(self):
        # Workers have the caller's limit, not ddlaunch's; this one raises its own.
        soft = 200
        self.run_alone("""
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
assert soft == 200, soft
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
stores = [Store() for _ in range(2000)]
for store in stores:
    store.ping()
""", limits=(soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def test_more_connections_than_the_hard_limit_is_a_warning_that_names_it(self):
        hard = 160
        job = self.run_alone("""
stores = [Store() for _ in range(60)]
(here / str(rank)).touch()
while not all((here / str(other)).exists() for other in range(3)):
    time.sleep(0.01)
for store in stores:
    store.ping() if rank == 0 else store.socket.close()
""", nproc=3, limits=(hard, hard))
        self.assertRegex(job.stderr, r"store takes no more connections now, \d+ connections are "
                         rf"open; others wait until some are closed; open files allowed: {hard} "
                         r".*ulimit -Hn")

    def test_name_of_no_address_is_an_error_that_names_the_flag(self):
        job = self.launch("--master-addr=nobody.invalid", "--rdzv-conf=join_timeout=1", "/bin/true")
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, "--master-addr=nobody.invalid: ", "resolve")
        self.run_alone("", "--master-addr=nobody.invalid", "--worker-store")

    def test_look_up_that_takes_long_is_ended_by_a_signal(self):
        job = self.start("--master-addr=nobody.invalid", "/bin/true")
        status = pathlib.Path(f"/proc/{job.process.pid}/status")
        wait_until(lambda: int(re.search(r"SigBlk:\t(\w+)", status.read_text())[1], 16) >> 1 & 1,
                   "it takes signals itself")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait().returncode, 128 + signal.SIGINT, job.stderr)

    @unittest.skipIf(os.geteuid() != 0, "needs another user to limit")
    def test_port_that_is_not_for_everybody_is_an_error_that_names_it(self):
        if int(pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 80:
            self.skipTest("every port is for everybody here")
        nobody = 65534
        def become_nobody():
            os.setgroups([])
            os.setgid(nobody)
            os.setuid(nobody)
        try:
            job = self.launch("--master-port=80", "/bin/true", preexec_fn=become_nobody, cwd="/",
                              env={"XDG_RUNTIME_DIR": ""})
        except PermissionError:
            self.skipTest("the build tree is closed to other users")
        self.assertEqual(job.returncode, 1)
        self.assert_one_line_error(job, "--master-port=80: ", "above 1023")

    def test_worker_store_leaves_the_port_to_rank_zero(self):
        serve = """
assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
socket.create_server((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))).close()
"""
        self.run_alone(serve, "--worker-store")
        self.run_alone(serve, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})

    def test_outlives_the_workers_of_its_node(self):
        program = self.program("""
store = Store()
if rank == 0:
    (here / "pid").write_text(str(os.getpid()))
else:
    while not (here / "pid").exists() or pathlib.Path("/proc/" + (here / "pid").read_text()).exists():
        time.sleep(0.01)
    store.ping()
    Store().ping()
""")
        endpoint = f"127.0.0.1:{free_port()}"
        jobs = [self.start("--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                           "--rdzv-id=j", program, self.dir) for _ in range(2)]
        self.assertEqual([job.wait().returncode for job in jobs], [0, 0], self.said())
        self.assert_nothing_left()

    def test_address_of_another_host_is_served_on_every_address_with_a_warning(self):
        job = self.run_alone('Store("127.0.0.1").ping()\nprint(os.environ["MASTER_ADDR"])\n',
                             "--local-addr=192.0.2.7")
        self.assertIn("192.0.2.7", job.stdout)
        self.assertRegex(job.stderr, "192.0.2.7 is no address of this host: PyTorch's store listens")

    def test_strangers_harm_nobody(self):
        program = self.program("""
store = Store()
(here / "port").write_text(os.environ["MASTER_PORT"])
while not (here / "done").exists():
    time.sleep(0.01)
store.ping()
""")
        job = self.start(program, self.dir)
        port = int(wait_until(lambda: pathlib.Path(self.path("port")).exists() and
                              pathlib.Path(self.path("port")).read_text(), "the worker is there"))
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"\0" + b"\xff" * 4096, b"\xff" * 4096):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
                stranger.sendall(text)
                try:
                    self.assertEqual(stranger.recv(1), b"")
                except ConnectionResetError:
                    pass
        self.be_done()
        self.assertEqual(job.wait().returncode, 0, job.stderr)


if __name__ == "__main__":
    unittest.main()
