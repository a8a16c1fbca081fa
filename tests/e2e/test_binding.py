#!/usr/bin/env python3
"""Which GPU, CPUs and threads each worker gets, and what is said where a machine
has too little for them. GPUs are those of the fake NVML of the unit tests; CPUs,
limits and /dev/shm are this machine's.
"""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

import harness

FAKE_NVML_DIR = harness.BIN_DIR.parent / "fake_nvml"
CPUS = sorted(os.sched_getaffinity(0))

# "local rank: variable=value cpus"
TELL = """
echo "$DDL_LOCAL_RANK LOCAL_RANK=$LOCAL_RANK OMP=${OMP_NUM_THREADS-none} \
CUDA=${CUDA_VISIBLE_DEVICES-none} CPUS=$(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)"
"""


def ranges(text):
    """{0, 1, 2, 8} of "0-2,8"."""
    cpus = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


class Binding(harness.E2eTest):
    def tell(self, *args, **kwargs):
        """What each worker said, by local rank, as a dictionary; and the job."""
        job = self.launch(*args, self.script("tell.sh", TELL), **kwargs)
        workers = {}
        for line in job.stdout.splitlines():
            words = line.split(":", 1)[-1].split() if line.startswith("[") else line.split()
            workers[int(words[0])] = dict(word.split("=", 1) for word in words[1:])
        return workers, job

    # ---- CPUs ------------------------------------------------------------------

    def test_numa_binding_of_this_machine(self):
        for kind in ("node", "socket", "core-complex"):
            workers, job = self.tell("--nproc-per-node=2", f"--numa-binding={kind}")
            self.assertEqual(job.returncode, 0, job.stderr)
            self.assertEqual(sorted(workers), [0, 1])
            for worker in workers.values():
                self.assertLessEqual(ranges(worker["CPUS"]), set(CPUS), kind)
            self.assertIn("workers are bound to CPUs: local rank 0 to", job.stderr)

    @unittest.skipIf(len(CPUS) < 2, "needs two CPUs")
    def test_two_numa_nodes_one_for_each_worker(self):
        # hwloc takes this for the machine; the kernel binds for real.
        machine = {"HWLOC_SYNTHETIC": "numa:2 core:1 pu:1(indexes=%d,%d)" % tuple(CPUS[:2])}
        workers, job = self.tell("--nproc-per-node=2", "--numa-binding=node", env=machine)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual([workers[rank]["CPUS"] for rank in (0, 1)], [str(c) for c in CPUS[:2]])
        self.assertEqual([workers[rank]["OMP"] for rank in (0, 1)], ["1", "1"])

    @unittest.skipIf(len(CPUS) < 2, "needs two CPUs")
    def test_exclusive_cores_do_not_overlap_and_survive_a_restart(self):
        machine = {"HWLOC_SYNTHETIC": "numa:1 core:2 pu:1(indexes=%d,%d)" % tuple(CPUS[:2])}
        body = TELL + '[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] || exit 3\n'
        job = self.launch("--nproc-per-node=2", "--numa-binding=exclusive", "--max-restarts=1",
                          self.script("once.sh", body), env=machine)
        self.assertEqual(job.returncode, 0, job.stderr)
        said = re.findall(r"]:(\d) .*CPUS=(\S+)", job.stdout)
        self.assertEqual(set(said), {("0", str(CPUS[0])), ("1", str(CPUS[1]))})

    def test_own_affinity_is_respected(self):
        one = {CPUS[-1]}
        workers, job = self.tell("--nproc-per-node=2", "--numa-binding=node",
                                 preexec_fn=lambda: os.sched_setaffinity(0, one))
        self.assertEqual(job.returncode, 0, job.stderr)
        for worker in workers.values():
            self.assertEqual(ranges(worker["CPUS"]), one)

    def test_what_cannot_be_is_refused_before_anything_starts(self):
        job = self.launch("--numa-binding=near", "/bin/true")
        self.assertEqual(job.returncode, 2)
        self.assert_one_line_error(job, "--numa-binding=near", "core-complex")
        job = self.launch("--nproc-per-node=1000", "--numa-binding=exclusive", "/bin/true")
        self.assertEqual(job.returncode, 2)
        self.assert_one_line_error(job, "--numa-binding=exclusive", "NUMA node", "1000 workers")

    # ---- threads ---------------------------------------------------------------

    def test_omp_threads_with_and_without_the_users_value(self):
        share = str(max(1, len(CPUS) // 2))
        for nproc, env, expected, lines in ((1, {}, "none", 0), (2, {}, share, 1),
                                            (1, {"OMP_NUM_THREADS": "3"}, "3", 0),
                                            (2, {"OMP_NUM_THREADS": "3"}, "3", 0)):
            workers, job = self.tell(f"--nproc-per-node={nproc}", env=env)
            self.assertEqual({worker["OMP"] for worker in workers.values()}, {expected})
            self.assertEqual(job.stderr.count("OMP_NUM_THREADS"), lines, job.stderr)
            self.assertEqual(len(job.stderr.splitlines()), lines, job.stderr)

    def test_omp_threads_are_of_the_cpuset(self):
        workers, job = self.tell("--nproc-per-node=2",
                                 preexec_fn=lambda: os.sched_setaffinity(0, {CPUS[0]}))
        self.assertEqual({worker["OMP"] for worker in workers.values()}, {"1"})
        self.assertIn("this node has 1 CPU for them", job.stderr)

    # ---- GPUs ------------------------------------------------------------------

    def gpus(self, *lines, **env):
        path = pathlib.Path(self.path("gpus"))
        path.write_text("".join(line + "\n" for line in lines))
        return {"LD_LIBRARY_PATH": str(FAKE_NVML_DIR), "DDL_FAKE_NVML": str(path), **env}

    TWO = ("GPU-1a2b|H100|0:b:0", "GPU-3c4d|H100|0:8b:0|MIG-aaaa|MIG-bbbb")

    def test_one_worker_for_each_visible_gpu(self):
        for visible, count in ((None, 2), ("1", 1), ("GPU-1a2b,MIG-bbbb", 2), ("0,-1,1", 1)):
            variable = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
            env = self.gpus(*self.TWO, **variable)
            workers, job = self.tell("--nproc-per-node=gpu", env=env)
            self.assertEqual(len(workers), count, job.stderr)
            self.assertIn(f"--nproc-per-node=gpu: {count} worker", job.stderr)
            for worker in workers.values():
                self.assertEqual(worker["CUDA"], visible or "none", "passed on untouched")

    def test_gpu_without_one_is_a_usage_error(self):
        for gpus, env in (((), {}), (self.TWO, {"CUDA_VISIBLE_DEVICES": ""}),
                          (self.TWO, {"CUDA_VISIBLE_DEVICES": "7"})):
            job = self.launch("--nproc-per-node=gpu", "/bin/true", env=self.gpus(*gpus, **env))
            self.assertEqual(job.returncode, 2)
            self.assert_one_line_error(job, "--nproc-per-node=gpu", "no GPU")

    def test_auto_without_gpus_is_one_for_each_cpu(self):
        workers, job = self.tell("--nproc-per-node=auto", env=self.gpus())
        self.assertEqual(len(workers), len(CPUS))
        self.assertIn(f"--nproc-per-node=auto: {len(CPUS)} worker", job.stderr)

    def test_virtual_local_rank_shows_each_its_gpu(self):
        env = self.gpus(*self.TWO, CUDA_VISIBLE_DEVICES="GPU-3c4d,0")
        workers, job = self.tell("--nproc-per-node=2", "--virtual-local-rank", env=env)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertEqual([workers[r]["CUDA"] for r in (0, 1)], ["GPU-3c4d", "0"])
        self.assertEqual([workers[r]["LOCAL_RANK"] for r in (0, 1)], ["0", "0"])

    def test_virtual_local_rank_of_the_sdk_is_still_each_its_own(self):
        job = self.launch("--nproc-per-node=2", "--virtual-local-rank", harness.TRAIN_BIN,
                          "--epochs=1", env=self.gpus(*self.TWO))
        self.assertEqual(job.returncode, 0, job.stderr + job.stdout)
        self.assertIn("world 2", job.stdout)

    def test_fewer_gpus_than_workers(self):
        env = self.gpus(*self.TWO, CUDA_VISIBLE_DEVICES="0")
        job = self.launch("--nproc-per-node=2", "--virtual-local-rank", "/bin/true", env=env)
        self.assertEqual(job.returncode, 2)
        self.assert_one_line_error(job, "--virtual-local-rank", "1 GPU", "local rank 1")
        # Without that flag it may be a program that uses no GPU.
        job = self.launch("--nproc-per-node=2", "/bin/true", env=env)
        self.assertEqual(job.returncode, 0)
        self.assertEqual(job.stderr.count("local ranks 0 and 1 would share one"), 1, job.stderr)

    # ---- what a machine has too little of ----------------------------------------

    @unittest.skipUnless(shutil.which("prlimit"), "needs prlimit")
    def test_open_files_are_raised_or_asked_for_before_a_worker_starts(self):
        touch = self.script("touch.sh", 'touch "$1/ran"\n')
        job = self.launch("--nproc-per-node=32", touch, self.dir,
                          prefix=("prlimit", "--nofile=64:64"))
        self.assertEqual(job.returncode, 1)
        self.assertIn("32 workers need", job.stderr)
        self.assertIn("the hard limit is 64", job.stderr)
        self.assertFalse(os.path.exists(self.path("ran")))
        limit = self.script("limit.sh", "ulimit -Sn\n")
        job = self.launch("--nproc-per-node=32", limit, prefix=("prlimit", "--nofile=64:1024"))
        self.assertEqual(job.returncode, 0, job.stderr)
        lines = [line.split(":")[-1] for line in job.stdout.splitlines()]
        self.assertEqual(lines, ["64"] * 32, "the workers keep the user's limit")

    def test_plain_start_loads_no_library_for_devices(self):
        env = self.gpus(*self.TWO, LD_DEBUG="files")
        job = self.launch("--nproc-per-node=2", "/bin/true", env=env)
        self.assertEqual(job.returncode, 0)
        self.assertIn("libc.so", job.stderr)
        for name in ("nvidia-ml", "hwloc", "udev"):
            self.assertNotIn(name, job.stderr)
        job = self.launch("--nproc-per-node=gpu", "/bin/true", env=env)
        self.assertIn("libnvidia-ml.so.1", job.stderr)

    def test_small_shared_memory_is_warned_of(self):
        mount = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
        prefix = ("unshare", "-m", "sh", "-c", mount, "sh")
        if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespace can be made")
        job = self.launch("--nproc-per-node=2", "/bin/true", prefix=prefix)
        self.assertEqual(job.returncode, 0, job.stderr)
        warnings = [line for line in job.stderr.splitlines() if "/dev/shm" in line]
        self.assertEqual(len(warnings), 1, job.stderr)
        self.assertIn("/dev/shm holds only 1.0 MiB", warnings[0])
        self.assertIn("--shm-size", warnings[0])
        job = self.launch("/bin/true", prefix=prefix)
        self.assertEqual(job.stderr, "", "one worker shares with nobody")


if __name__ == "__main__":
    unittest.main()
