#!/usr/bin/env python3
"""The nearest thing of PyTorch's to rendezvous_bench: N clients of one TCPStore
connect, count themselves in, and wait for a key that is set when all are there.

Usage: tcpstore_peer.py [--python PYTHON] [--processes N] [--repeat N] [NODES...]

It is less than a rendezvous: nobody is told apart, gets a rank, beats, or is
missed when gone; torchrun does all that on top, with many more round trips.
Times as rendezvous_bench has them: from the first client's start, and from the
last one's count, to the last that was let go. Needs a Python with PyTorch; with
12000 clients at once 1.13's store resets connections, and this ends with an error.
"""

import argparse
import resource
import subprocess
import sys

CLIENTS = """
import datetime, os, sys, threading, time
import torch.distributed as dist
port, count, total = map(int, sys.argv[1:])
wait = datetime.timedelta(seconds=600)
stores, counted, let_go = [], [0.0] * count, [0.0] * count
def client(i):
    try:
        join(i)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
def join(i):
    store = dist.TCPStore("127.0.0.1", port, total, False, wait, wait_for_workers=False)
    stores.append(store)
    last = store.add("here", 1) == total
    counted[i] = time.monotonic()
    if last:
        store.set("go", "1")
    store.wait(["go"])
    let_go[i] = time.monotonic()
threading.stack_size(256 * 1024)
threads = [threading.Thread(target=client, args=(i,)) for i in range(count)]
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(began, max(counted), max(let_go), flush=True)
sys.stdin.readline()
"""
SERVER = """
import datetime, sys
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, 1, True, datetime.timedelta(seconds=600),
                      wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.readline()
"""


def spawn(python, program, *args):
    return subprocess.Popen([python, "-c", program, *map(str, args)], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def cpu_seconds(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(python, nodes, processes):
    server = spawn(python, SERVER)
    clients = []
    try:
        port = int(server.stdout.readline())
        clients = [spawn(python, CLIENTS, port,
                         nodes * (i + 1) // processes - nodes * i // processes, nodes)
                   for i in range(processes)]
        for client in clients:
            client.stdout.readline()
        before = cpu_seconds(server)
        for client in clients:
            client.stdin.write("join\n")
            client.stdin.flush()
        lines = [client.stdout.readline() for client in clients]
        if not all(lines):
            sys.exit(f"tcpstore_peer: a process of clients failed with {nodes} nodes")
        began, counted, let_go = zip(*(map(float, line.split()) for line in lines))
        print(f"{nodes:7}{max(let_go) - min(began):9.2f}{max(let_go) - max(counted):9.2f}"
              f"{cpu_seconds(server) - before:9.2f}", flush=True)
    finally:
        for process in [*clients, server]:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default="python3", help="one that has PyTorch")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("nodes", type=int, nargs="*", default=[100, 1000, 4000])
    options = parser.parse_args()

    if subprocess.run([options.python, "-c", "import torch.distributed"], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"tcpstore_peer: {options.python} has no PyTorch")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'nodes':>7}{'form s':>9}{'last s':>9}{'store s':>9}")
    for nodes in options.nodes:
        for _ in range(options.repeat):
            measure(options.python, nodes, options.processes)


if __name__ == "__main__":
    main()
