"""--env: what the programs of other frameworks find in their environment, and what
of another launcher's they do not. Programs of the frameworks themselves are run by
tests/frameworks."""

import json
import re
import shutil
import unittest

from harness import E2eTest, free_port, wait_until

OF_FRAMEWORKS = ("TF_CONFIG", "JAX_", "OMPI_", "HOROVOD_", "PMI_", "PMIX_")
# What a program does that reads its rank where Open MPI's mpirun puts it.
SHOW_MPI = ('echo "$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE '
            '$OMPI_COMM_WORLD_LOCAL_RANK/$OMPI_COMM_WORLD_LOCAL_SIZE" >> "$1"')
# MPI_Init and what it found, in real Open MPI without its headers.
MPI_INIT = r"""
import ctypes
import sys
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
assert mpi.MPI_Init(None, None) == 0
world = ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world"))
rank, size = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
sys.stdout.write(f"mpi {rank.value} of {size.value}\n")  # whole, also where two print
mpi.MPI_Finalize()
"""


class FrameworkEnv(E2eTest):
    def environments(self, nodes):
        """By rank, what each worker's environment was."""
        found = {}
        for node in nodes:
            for line in node.stdout.splitlines():
                if "{" in line:
                    variables = json.loads(line[line.index("{"):])
                    found[int(variables["RANK"])] = variables
        return found

    def show(self):
        path = self.path("show.py")
        with open(path, "w") as file:
            file.write("import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n")
        return path

    def two_nodes(self, *flags, env=None):
        endpoint = f"127.0.0.1:{free_port()}"
        nodes = [self.start("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                            f"--rdzv-endpoint={endpoint}", f"--rdzv-id={self.mark}", *flags,
                            self.show(), env=env) for _ in range(2)]
        for node in nodes:
            self.assertEqual(node.wait().returncode, 0, self.said())
        found = self.environments(nodes)
        self.assertEqual(sorted(found), [0, 1, 2, 3])
        return found

    def test_default_sets_nothing_of_other_frameworks(self):
        job = self.launch("--nproc-per-node=2", self.show())
        self.assertEqual(job.returncode, 0, job.stderr)
        for variables in self.environments([job]).values():
            self.assertEqual([name for name in variables if name.startswith(OF_FRAMEWORKS)], [])
            self.assertNotIn("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", variables)

    def test_tensorflow_every_worker_knows_all_and_itself(self):
        found = self.two_nodes("--env=tensorflow")
        configs = [json.loads(found[rank]["TF_CONFIG"]) for rank in range(4)]
        workers = configs[0]["cluster"]["worker"]
        self.assertEqual(len(set(workers)), 4, workers)
        for rank, config in enumerate(configs):
            self.assertEqual(config["task"], {"type": "worker", "index": rank})
            self.assertEqual(config["cluster"], {"worker": workers})
            self.assertNotIn(f":{found[rank]['MASTER_PORT']}", workers[rank])

    def test_jax_the_coordinator_is_rank_0_s_own_port(self):
        found = self.two_nodes("--env=jax,tensorflow")
        first = json.loads(found[0]["TF_CONFIG"])["cluster"]["worker"][0]
        for rank, variables in found.items():
            self.assertEqual(variables["JAX_COORDINATOR_ADDRESS"], first)
            self.assertEqual(variables["OMPI_COMM_WORLD_RANK"], str(rank))
            self.assertEqual(variables["JAX_LOCAL_DEVICE_IDS"], variables["LOCAL_RANK"])

    def test_node_with_another_env_is_refused_by_name(self):
        endpoint = f"127.0.0.1:{free_port()}"
        common = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                  f"--rdzv-id={self.mark}"]
        first = self.start(*common, "--env=tensorflow", self.show())
        wait_until(lambda: "1 of 2 nodes" in first.stderr, "the first node is there")
        second = self.launch(*common, self.show())
        self.assertEqual(second.returncode, 2, self.said())
        self.assertIn("neither tensorflow nor jax in --env", second.stderr)

    def test_mpi_readers_find_their_rank(self):
        script = self.script("show", SHOW_MPI)
        job = self.launch("--env=mpi", "--nproc-per-node=3", script, self.path("ranks"))
        self.assertEqual(job.returncode, 0, job.stderr)
        with open(self.path("ranks")) as file:
            self.assertEqual(sorted(file.read().split("\n")), ["", "0/3 0/3", "1/3 1/3", "2/3 2/3"])

    def test_plans_accumulation_goes_before_the_environments_and_says_so(self):
        job = self.launch("--nproc-per-node=2", "--global-batch-size=16", "--micro-batch-size=2",
                          self.show(), env={"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "3"})
        self.assertEqual(job.returncode, 0, job.stderr)
        for variables in self.environments([job]).values():
            self.assertEqual(variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"], "4")
        self.assertIn("ACCELERATE_GRADIENT_ACCUMULATION_STEPS=3", job.stderr)

    def test_what_srun_said_of_ddlaunch_reaches_no_worker(self):
        job = self.launch("--nproc-per-node=2", self.show(),
                          env={"SLURM_PROCID": "7", "SLURM_NTASKS": "9", "SLURM_JOB_ID": "5"})
        for variables in self.environments([job]).values():
            self.assertNotIn("SLURM_PROCID", variables)
            self.assertEqual(variables["SLURM_NTASKS"], "9")  # sbatch's too, and srun's default
            self.assertEqual(variables["SLURM_JOB_ID"], "5")
        self.assertIn("not passed on to the workers", job.stderr)
        self.assertIn("SLURM_PROCID", job.stderr)


@unittest.skipUnless(shutil.which("mpirun"), "needs openmpi-bin")
class OpenMpi(E2eTest):
    """A real MPI_Init in a worker, and ddlaunch under a real mpirun."""

    MPIRUN = ("mpirun", "--oversubscribe", "-n")
    AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def found(self, *args, prefix=()):
        with open(self.path("init.py"), "w") as file:
            file.write(MPI_INIT)
        job = self.launch(*args, self.path("init.py"), prefix=prefix, env=self.AS_ROOT)
        self.assertEqual(job.returncode, 0, self.said())
        return sorted(re.findall(r"mpi (\d+ of \d+)", job.stdout))

    def test_init_in_a_worker_is_a_world_of_its_own_whatever_the_env(self):
        for env in ("torch", "mpi", "jax", "mpi,jax,torch,tensorflow"):
            with self.subTest(env=env):
                found = self.found("--nproc-per-node=2", f"--env={env}")
                self.assertEqual(found, ["0 of 1", "0 of 1"])

    def test_under_mpirun_workers_do_not_take_themselves_for_its_process(self):
        found = self.found("--nproc-per-node=2", "--env=mpi", prefix=(*self.MPIRUN, "1"))
        self.assertEqual(found, ["0 of 1", "0 of 1"])

    def test_under_mpirun_a_worker_that_is_alone_is_mpiruns(self):
        found = self.found(prefix=(*self.MPIRUN, "2"))
        self.assertEqual(found, ["0 of 2", "1 of 2"])


if __name__ == "__main__":
    unittest.main()
