#!/usr/bin/env python3
"""PyTorch's own clients against the store that ddlaunch serves (store_host).

DDL_BIN_DIR names the directory of store_host. DDL_TORCH_PYTHON: a Python that has
PyTorch (default: /usr/bin/python3 with Debian's python3-torch, 1.13, which speaks
the bare dialect); any 2.x speaks the validated one and has more operations.
"""

import datetime
import os
import pathlib
import socket
import subprocess
import sys
import threading
import unittest

PYTHON = os.environ.get("DDL_TORCH_PYTHON", "/usr/bin/python3")
try:
    import torch.distributed as dist
except ImportError:
    if os.environ.get("DDL_TORCH_TRIED"):
        sys.exit(f"{PYTHON} has no PyTorch; install python3-torch, or set DDL_TORCH_PYTHON")
    os.environ["DDL_TORCH_TRIED"] = "1"
    os.execv(PYTHON, [PYTHON, *(["-B"] if sys.dont_write_bytecode else []), *sys.argv])

HOST = str(pathlib.Path(os.environ["DDL_BIN_DIR"]) / "store_host")
LONG = datetime.timedelta(seconds=60)
SHORT = datetime.timedelta(milliseconds=300)
NEW = hasattr(dist.TCPStore, "append")  # 2.1 and later


class StoreTest(unittest.TestCase):
    def setUp(self):
        self.host = subprocess.Popen([HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
        self.port = int(self.host.stdout.readline())

    def tearDown(self):
        self.host.stdin.close()
        self.assertEqual(self.host.wait(60), 0)
        self.host.stdout.close()
        self.host.stderr.close()

    def client(self, world=None, timeout=LONG):
        if world is None:
            return dist.TCPStore("127.0.0.1", self.port, is_master=False, timeout=timeout,
                                 wait_for_workers=False)
        return dist.TCPStore("127.0.0.1", self.port, world, False, timeout)

    def test_every_operation(self):
        a, b = self.client(world=2), self.client(world=2)
        self.assertEqual(a.num_keys(), 1)  # init/
        a.set("key", "value")
        self.assertEqual(b.get("key"), b"value")
        a.set("empty", "")
        self.assertEqual(b.get("empty"), b"")
        a.set("key", "x" * 3_000_000)  # in many pieces
        a.num_keys()  # set has no answer; this one comes after it
        self.assertEqual(len(b.get("key")), 3_000_000)
        self.assertEqual(a.add("n", 5), 5)
        self.assertEqual(b.add("n", -7), -2)
        self.assertEqual(a.get("n"), b"-2")
        self.assertEqual(a.compare_set("c", "", "1"), b"1")
        self.assertEqual(b.compare_set("c", "0", "2"), b"1")
        self.assertEqual(b.compare_set("c", "1", "2"), b"2")
        a.wait(["key", "n"])
        b.wait(["key", "n"], SHORT)
        self.assertEqual(a.num_keys(), 5)
        self.assertTrue(a.delete_key("key"))
        self.assertFalse(a.delete_key("key"))

    def test_wait_with_a_timeout_and_go_on(self):
        store, other = self.client(), self.client()
        store.set_timeout(SHORT)
        for _ in range(3):
            with self.assertRaises(Exception) as caught:
                store.wait(["missing"])
            self.assertRegex(str(caught.exception), "(?i)time")
            self.assertGreater(store.add("n", 1), 0)
        other.set("missing", "1")  # nobody waits any more
        self.assertEqual(store.get("missing"), b"1")
        with self.assertRaises(Exception):
            store.get("never")
        self.assertEqual(store.num_keys(), 2)

    def test_wait_for_another(self):
        store, other = self.client(), self.client()
        got = []
        thread = threading.Thread(target=lambda: got.append(store.get("late")))
        thread.start()
        other.set("late", "here")
        thread.join(60)
        self.assertEqual(got, [b"here"])

    def test_add_to_a_word_closes_that_client_only(self):
        store, other = self.client(), self.client()
        store.set("word", "apples")
        store.num_keys()
        with self.assertRaises(Exception):
            store.add("word", 1)
        self.assertEqual(other.get("word"), b"apples")

    def test_strangers_between_many_clients(self):
        clients = [self.client(world=64) for _ in range(64)]
        strangers = []
        for bytes_ in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 100, os.urandom(1000), b"\x16\x03\x01",
                       b"\0\xce\xf7\x85\x3c" + b"\xff" * 10, b""):
            stranger = socket.create_connection(("127.0.0.1", self.port))
            stranger.sendall(bytes_)
            strangers.append(stranger)
        left = []

        def meet(store):
            if store.add("here", 1) == len(clients):
                store.set("go", "1")
            store.wait(["go"])
            left.append(store)

        threads = [threading.Thread(target=meet, args=(store,)) for store in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        self.assertEqual(len(left), len(clients))
        for stranger in strangers:
            stranger.close()

    @unittest.skipUnless(NEW, "newer than this PyTorch")
    def test_operations_of_later_versions(self):
        a, b = self.client(), self.client()
        a.append("list", "1")
        a.num_keys()
        b.append("list", "2")
        b.num_keys()
        self.assertEqual(a.get("list"), b"12")
        a.multi_set(["x", "y"], ["1", "2" * 100_000])
        a.num_keys()
        self.assertEqual(b.multi_get(["x", "y"]), [b"1", b"2" * 100_000])
        if hasattr(a, "check"):
            self.assertTrue(a.check(["x", "y"]))
            self.assertFalse(a.check(["x", "z"]))
        if hasattr(a, "list_keys"):
            self.assertEqual({key.lstrip("/") for key in b.list_keys()}, {"list", "x", "y"})
        if hasattr(a, "clone"):
            self.assertEqual(a.clone().get("x"), b"1")
        if hasattr(a, "queue_push"):
            a.queue_push("q", "first")
            a.queue_push("q", "second")
            a.num_keys()
            self.assertEqual(b.queue_len("q"), 2)
            self.assertEqual(b.queue_pop("q"), b"first")
            self.assertEqual(b.queue_pop("q", block=False), b"second")
            with self.assertRaises(Exception):
                b.queue_pop("q", block=False)
            got = []
            thread = threading.Thread(target=lambda: got.append(b.queue_pop("q")))
            thread.start()
            a.queue_push("q", "third")
            thread.join(60)
            self.assertEqual(got, [b"third"])

    @unittest.skipUnless(hasattr(dist.TCPStore, "barrier"), "newer than this PyTorch")
    def test_barrier(self):
        clients = [self.client() for _ in range(8)]
        threads = [threading.Thread(target=store.barrier, args=("b", 8)) for store in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())
        with self.assertRaises(Exception):
            clients[0].barrier("alone", 2, SHORT)
        self.assertEqual(clients[0].add("n", 1), 1)


if __name__ == "__main__":
    unittest.main()
