"""What the README shows is what the program does: its commands run, its output
came from them, its program is the one that a test builds and runs."""

import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import BIN_DIR, E2eTest, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
ELSEWHERE = {  # run by other means: CI itself, and the test of a fresh machine
    "tests/run.sh", "deploy/quickstart.sh",
}


def blocks(language):
    """The fenced blocks of that language ("": none), in order."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in fences if name == language]


class ReadmeTest(E2eTest):
    def setUp(self):
        super().setUp()
        self.script("script.sh", 'echo "$1|$2"\n')
        pathlib.Path(self.path("train.py")).write_text("import os\nprint(os.environ['RANK'])\n")
        self.port = str(free_port())

    def shell(self, line):
        env = self.environment({"PATH": f"{BIN_DIR}:{os.environ['PATH']}"})
        return subprocess.Popen(["/bin/sh", "-c", line.replace("29400", self.port)], env=env,
                                cwd=self.dir, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def test_every_command_runs(self):
        lines = [line for block in blocks("sh") for line in block.splitlines()]
        self.assertGreater(len(lines), 5)
        for line in lines:
            if line in ELSEWHERE:
                self.assertTrue(os.access(ROOT / line, os.X_OK), line)
                continue
            with self.subTest(line=line):
                self.assertTrue(line.startswith("ddlaunch "), line)
                if line.startswith("ddlaunch coordinator"):
                    self.check_coordinator(line)
                    continue
                two = "--nnodes=2" in line or "--nnodes=1:2" in line
                shells = [self.shell(line) for _ in range(2 if two else 1)]
                outputs = [shell.communicate(timeout=300)[0] for shell in shells]
                refused = "--global-batch-size=30" in line
                for shell, output in zip(shells, outputs):
                    self.assertEqual(shell.returncode, 2 if refused else 0, output)
        shutil.rmtree(self.path("ddlaunch-tune"))  # by its name it could be a gateway's

    def check_coordinator(self, line):
        """It serves until it is stopped."""
        shell = self.shell("exec " + line)
        self.assertIn("listening on", shell.stdout.readline())
        shell.terminate()
        output = shell.communicate(timeout=60)[0]
        self.assertEqual(shell.returncode, 0, output)

    def test_section_on_the_plan_shows_what_is_said(self):
        """Each output there is of the commands above it."""
        section = README.split("## Batch size, accumulation and learning rate")[1]
        section = section.split("\n## ")[0]
        fences = re.findall(r"^```(\w*)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(fences), 9)
        compared = 0
        said = ""
        vary = re.compile(r"(on host )\S+|\d+ samples/s|[\d.]+ MiB|[\d.]+ %")
        for language, text in fences:
            if language == "sh":
                said = "" if "ddlaunch tune" in text else "".join(
                    self.shell(line).communicate(timeout=300)[0] for line in text.splitlines())
                continue
            for line in text.splitlines():
                if said and line != "...":
                    self.assertIn(vary.sub("", line), vary.sub("", said))
                    compared += 1
        self.assertGreater(compared, 9)

    def test_main_job_prints_what_is_shown(self):
        shown = next(block for block in blocks("") if "epoch 4/20" in block)
        said = self.shell("ddlaunch --nproc_per_node=4 train_bin").communicate(timeout=120)[0]
        speed = re.compile(r"\d+ samples/s")
        for line in shown.splitlines():
            self.assertIn(speed.sub("", line), speed.sub("", said))

    def test_failure_summary_has_the_shown_shape(self):
        shown = next(block for block in blocks("") if "Root Cause" in block)
        self.script("fail.sh", 'test "$RANK" = 1 && { echo boom >&2; exit 3; }\nsleep 600\n')
        shell = self.shell("ddlaunch --nproc_per_node=2 ./fail.sh")
        said = shell.communicate(timeout=120)[0]
        self.assertEqual(shell.returncode, 3)
        vary = re.compile(r"(time +: |host +: |on host |pid: )\S+")
        for line in shown.splitlines():
            self.assertIn(vary.sub(r"\1", line), vary.sub(r"\1", said))

    def test_program_is_the_one_that_is_built(self):
        (program,) = blocks("cpp")
        built = (ROOT / "tests/install_consumer/consumer/main.cc").read_text()
        self.assertTrue(built.endswith(program), "README and tests/install_consumer differ")

    def test_flags_in_the_table_are_in_the_help(self):
        known = "".join(self.shell(f"ddlaunch {command} --help").communicate(timeout=60)[0]
                        for command in ("", "plan", "tune"))
        for flag in set(re.findall(r"`(--[a-z-]+)", README)):
            if flag != "--preset":
                self.assertIn(flag, known)


if __name__ == "__main__":
    unittest.main()
