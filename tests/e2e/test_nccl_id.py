"""The real ncclUniqueId: one a round, the same 128 bytes on every rank, through
the gateways of two nodes and the coordinator. Works without a GPU."""

import pathlib
import unittest

from harness import BIN_DIR, E2eTest, free_port

NO_NCCL = 77


class NcclIdTest(E2eTest):
    def test_every_rank_has_the_same_id_and_each_round_its_own(self):
        common = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
                  "--nproc_per_node=2", "--max-restarts=1", BIN_DIR / "nccl_id_probe",
                  self.path("id")]
        jobs = [self.start(*common) for _ in range(2)]
        codes = [job.wait().returncode for job in jobs]
        if NO_NCCL in codes:
            self.skipTest(jobs[0].stderr)
        self.assertEqual(codes, [0, 0], jobs[0].stderr + jobs[1].stderr)
        lines = [pathlib.Path(self.path(f"id-{rank}")).read_text().split("\n")[:-1]
                 for rank in range(4)]
        self.assertEqual([len(of_rank) for of_rank in lines], [2, 2, 2, 2])
        first, second = ({of_rank[i] for of_rank in lines} for i in (0, 1))
        self.assertEqual((len(first), len(second)), (1, 1), "ranks differ")
        id_of = lambda line: line.split()[1]
        self.assertEqual(len(id_of(lines[0][0])), 2 * 128)
        self.assertNotEqual(id_of(lines[0][0]), id_of(lines[0][1]), "the second round's is new")
        self.assertNotEqual(set(id_of(lines[0][0])), {"0"})


if __name__ == "__main__":
    unittest.main()
