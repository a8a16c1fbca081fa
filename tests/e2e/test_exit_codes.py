"""The exit code of ddlaunch is the root cause's: 0..255, and 128 + signal."""

import signal
import unittest

from harness import E2eTest


class ExitCodeTest(E2eTest):
    def test_every_exit_code_passes(self):
        script = self.script("exit.sh", 'exit "$1"\n')
        for code in range(256):
            with self.subTest(code=code):
                self.assertEqual(self.launch(script, code).returncode, code)

    def test_death_by_signal_is_128_plus_its_number(self):
        script = self.script("kill.sh", 'kill -"$1" $$; sleep 60\n')
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGABRT, signal.SIGKILL,
                       signal.SIGSEGV, signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(signal=number):
                job = self.launch(script, int(number))
                self.assertEqual(job.returncode, 128 + number)
                self.assertIn(number.name, job.stderr)

    def test_failure_of_one_rank_ends_all_and_names_it(self):
        script = self.script("one.sh", 'test "$RANK" = 1 && exit 3; sleep 600\n')
        job = self.launch("--nproc_per_node=4", script)
        self.assertEqual(job.returncode, 3)
        self.assertIn("Root Cause", job.stderr)
        self.assertRegex(job.stderr, r"rank\s*:\s*1 ")
        self.assertRegex(job.stderr, r"exitcode\s*:\s*3 ")
        self.assert_nothing_left()

    def test_restart_gives_every_rank_the_same_count(self):
        script = self.script("retry.sh", 'echo "count $TORCHELASTIC_RESTART_COUNT of $RANK"\n'
                             'test "$RANK$TORCHELASTIC_RESTART_COUNT" = 10 && exit 9\n'
                             'test "$TORCHELASTIC_RESTART_COUNT" = 1 || sleep 600\n')
        job = self.launch("--nproc_per_node=2", "--max-restarts=1", script)
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("count 1 of 0", job.stdout)
        self.assertIn("count 1 of 1", job.stdout)

    def test_budget_of_restarts_is_kept_exactly(self):
        script = self.script("fail.sh", 'echo "attempt $TORCHELASTIC_RESTART_COUNT"; exit 7\n')
        job = self.launch("--max-restarts=2", script)
        self.assertEqual(job.returncode, 7)
        self.assertEqual(job.stdout.split(), "attempt 0 attempt 1 attempt 2".split())


if __name__ == "__main__":
    unittest.main()
