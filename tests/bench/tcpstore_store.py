#!/usr/bin/env python3
"""The store that ddlaunch serves beside PyTorch's own server, with PyTorch's clients.

Usage: tcpstore_store.py STORE_HOST [--python PYTHON] [--repeat N] [--operations N]

Both serve from a process of their own, in turn, in the same run. One client asks
one thing after the other (set, get, add: thousands a second); eight clients add at
once; 64 clients meet in barriers (add and wait for a key; milliseconds from the
first's start to the last's return). Clients are threads of one Python, which costs
more than either server: the ratios say what a program sees, not what a server
could do. PYTHON needs PyTorch.
"""

import argparse
import statistics
import subprocess
import sys

SERVER = """
import datetime, sys
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=600),
                      wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.readline()
"""
CLIENTS = """
import datetime, sys, threading, time
import torch.distributed as dist
operations = int(sys.argv[1])
def client(port):
    return dist.TCPStore("127.0.0.1", port, is_master=False,
                         timeout=datetime.timedelta(seconds=600), wait_for_workers=False)
def all_at_once(function, clients):
    threads = [threading.Thread(target=function, args=(store,)) for store in clients]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began
def rate(function):
    began = time.perf_counter()
    for i in range(operations):
        function(i)
    return operations / (time.perf_counter() - began) / 1000
def measure(port):
    one = client(port)
    def put(i):
        one.set(f"key{i % 100}", "x" * 100)
        if i + 1 == operations:
            one.num_keys()  # set has no answer
    results = [rate(put), rate(lambda i: one.get(f"key{i % 100}")), rate(lambda i: one.add("n", 1))]
    eight = [client(port) for _ in range(8)]
    def add_all(store):
        for _ in range(operations // 8):
            store.add("m", 1)
    results.append(operations / all_at_once(add_all, eight) / 1000)
    many = [client(port) for _ in range(64)]
    times = []
    for round in range(10):
        def meet(store):
            if store.add(f"here{round}", 1) == len(many):
                store.set(f"go{round}", "1")
            store.wait([f"go{round}"])
        times.append(all_at_once(meet, many) * 1000)
    results.append(sorted(times)[len(times) // 2])
    return results
print("ready", flush=True)
for line in sys.stdin:
    print(*measure(int(line)), flush=True)
"""
WHAT = ["set, 1000/s", "get, 1000/s", "add, 1000/s", "add by 8 at once, 1000/s",
        "barrier of 64, ms"]


def spawn(*command):
    return subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("store_host")
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has PyTorch")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--operations", type=int, default=5000)
    options = parser.parse_args()
    servers = {"ddlaunch": [options.store_host], "PyTorch": [options.python, "-c", SERVER]}
    clients = spawn(options.python, "-c", CLIENTS, str(options.operations))
    if clients.stdout.readline() != "ready\n":
        sys.exit(f"tcpstore_store: {options.python} has no PyTorch")
    results = {name: [] for name in servers}
    for _ in range(options.repeat):
        for name, command in servers.items():
            server = spawn(*command)  # a new one each time, as for each round of a job
            try:
                clients.stdin.write(server.stdout.readline())
                clients.stdin.flush()
                results[name].append(list(map(float, clients.stdout.readline().split())))
            finally:
                server.stdin.close()
                server.wait()
    clients.stdin.close()
    clients.wait()
    print(f"{'median of ' + str(options.repeat):26}{'ddlaunch':>10}{'PyTorch':>10}{'ratio':>8}")
    for i, what in enumerate(WHAT):
        own, peer = (statistics.median(run[i] for run in results[name]) for name in servers)
        print(f"{what:26}{own:10.2f}{peer:10.2f}{own / peer:8.2f}")


if __name__ == "__main__":
    main()
