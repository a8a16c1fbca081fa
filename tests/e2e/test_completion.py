"""The scripts of --print-completion, sourced by real shells at a terminal: what Tab
makes of a line, and what all the offers for a line are. And the manual page."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import time
import unittest

BIN_DIR = pathlib.Path(os.environ["DDL_BIN_DIR"])
DDLAUNCH = str(BIN_DIR / "ddlaunch")
WAIT_S = 30
TAB, ALL, DUMP, CLEAR = b"\t", b"\x18a", b"\x18d", b"\x18k"  # ^X and a letter

# Each makes ^Xa insert every completion, ^Xd write the line to the file $LINE (by a
# rename, so that whoever sees it sees it whole), and ^Xk empty it.
BASH = r"""
PS1='ready> '
bind '"\C-xa": insert-completions'
bind '"\C-xk": kill-whole-line'
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
dump() { printf %s "$READLINE_LINE" > "$LINE.part"; mv "$LINE.part" "$LINE"; }
bind -x '"\C-xd": dump'
"""
ZSH = r"""
PS1='ready> '
unsetopt beep
autoload -Uz compinit
compinit -D
zstyle ':completion:*' completer _complete
zstyle ':completion:all:*' completer _all_matches _complete
zstyle ':completion:all:*' insert yes
zle -C all complete-word _generic
dump() { printf %s "$BUFFER" > "$LINE.part"; mv "$LINE.part" "$LINE"; }
zle -N dump
bindkey '^Xa' all
bindkey '^Xd' dump
bindkey '^Xk' kill-whole-line
"""


def flags_in_help(*command):
    text = subprocess.run([DDLAUNCH, *command, "--help"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    return set(re.findall(r"^(?:     |  -\w,) (--[a-z0-9-]+)", text, re.MULTILINE))


class Shell:
    """A shell at a terminal of its own, in a directory with the script sourced."""

    def __init__(self, argv, setup, directory):
        self.line_file = pathlib.Path(directory, ".line")
        environment = {"PATH": f"{BIN_DIR}:/usr/bin:/bin", "HOME": directory, "TERM": "dumb",
                       "LINE": str(self.line_file), "HISTFILE": "", "LC_ALL": "C"}
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execve(argv[0], argv, environment)
        pathlib.Path(directory, ".setup").write_text(setup)
        os.write(self.terminal, b". ./.setup; echo set''up\n")
        self.read_until(rb"setup\r\n.*ready> ")  # the output, not the echo of the input

    def read_until(self, text):
        seen, deadline = b"", time.monotonic() + WAIT_S
        while not re.search(text, seen, re.DOTALL):
            left = deadline - time.monotonic()
            if not select.select([self.terminal], [], [], max(left, 0))[0]:
                raise AssertionError(f"no {text!r} in {seen!r}")
            seen += os.read(self.terminal, 65536)
        return seen

    def line_after(self, typed, key):
        """The line once `typed` and the key were typed; the shell's bell is no word."""
        os.write(self.terminal, typed.encode() + key + DUMP)
        deadline = time.monotonic() + WAIT_S
        while not self.line_file.exists():
            if time.monotonic() > deadline:
                raise AssertionError(f"{typed!r}: no answer")
            if select.select([self.terminal], [], [], 0.005)[0]:
                os.read(self.terminal, 65536)
        line = self.line_file.read_text()
        self.line_file.unlink()
        os.write(self.terminal, CLEAR)
        return line

    def close(self):
        os.close(self.terminal)  # a hangup ends it
        os.waitpid(self.pid, 0)


class CompletionTests:
    """What holds in every shell."""

    def setUp(self):
        if not shutil.which(self.argv[0]):
            self.skipTest(f"no {self.argv[0]} here")
        temp = tempfile.TemporaryDirectory(prefix="ddl-completion-")
        self.addCleanup(temp.cleanup)
        for name in ("train.py", "my train.py", "token.txt"):
            pathlib.Path(temp.name, name).touch()
        pathlib.Path(temp.name, "logs").mkdir()
        self.shell = Shell(self.argv, self.setup + self.load, temp.name)
        self.addCleanup(self.shell.close)

    def completed(self, typed):
        return self.shell.line_after("ddlaunch " + typed, TAB).removeprefix("ddlaunch ")

    def offers(self, typed):
        """All completions of the last word of `typed`."""
        line = self.shell.line_after("ddlaunch " + typed, ALL).removeprefix("ddlaunch ")
        start = typed.rindex(" ") + 1 if " " in typed else 0
        self.assertEqual(line[:start], typed[:start])
        return set(line[start:].split())

    def names(self, typed):
        return {offer.split("=")[0] for offer in self.offers(typed)}

    def test_every_flag_is_offered(self):
        known = flags_in_help()
        self.assertGreater(len(known), 40)
        self.assertEqual(known - self.names("--"), set())
        for command in ("coordinator", "plan"):
            self.assertEqual(self.names(f"{command} --"), flags_in_help(command))

    def test_flag_that_is_refused_is_not_offered(self):
        self.assertNotIn("--logs-specs", self.names("--"))

    def test_unique_beginning_is_completed(self):
        self.assertEqual(self.completed("--rdzv-e"), "--rdzv-endpoint=")
        self.assertEqual(self.completed("--stand"), "--standalone ")
        self.assertEqual(self.completed("--nnodes=2 --nproc"), "--nnodes=2 --nproc-per-node=")
        self.assertEqual(self.completed("coordinator --li"), "coordinator --listen=")

    def test_underscores_are_as_good(self):
        self.assertIn(self.completed("--rdzv_en"), ("--rdzv_endpoint=", "--rdzv-endpoint="))
        self.assertIn(self.completed("--rdzv_backend=c"),
                      ("--rdzv_backend=c10d ", "--rdzv-backend=c10d "))
        self.assertEqual(self.completed("--rdzv_backend c"), "--rdzv_backend c10d ")

    def test_words_of_a_value_are_offered(self):
        words = {
            "--nproc-per-node": "auto cpu gpu", "--rdzv-backend": "static c10d",
            "--numa-binding": "none node socket exclusive core-complex",
            "--lr-scaling": "none linear sqrt", "--start-method": "spawn fork forkserver",
            "--event-log-handler": "null console", "--print-completion": "bash zsh",
            "-r": "0 1 2 3", "--tee": "0 1 2 3",
        }
        for flag, expected in words.items():
            with self.subTest(flag=flag):
                self.assertEqual(self.offers(flag + " "), set(expected.split()))
        self.assertEqual(self.completed("--nproc-per-node=c"), "--nproc-per-node=cpu ")
        self.assertEqual(self.completed("--rdzv-backend c"), "--rdzv-backend c10d ")

    def test_lists_go_on_after_a_comma(self):
        self.assertEqual(self.completed("--env=torch,te").rstrip(" ,"), "--env=torch,tensorflow")
        self.assertEqual(self.completed("--env j").rstrip(" ,"), "--env jax")
        self.assertEqual(self.completed("--rdzv-conf=join"), "--rdzv-conf=join_timeout=")

    def test_value_with_colons_ends_where_it_ends(self):
        self.assertEqual(self.completed("--rdzv-endpoint=[::1]:29400 --stand"),
                         "--rdzv-endpoint=[::1]:29400 --standalone ")
        self.assertEqual(self.completed("--rdzv-endpoint host:1 --rdzv-id=a:b=c tr"),
                         "--rdzv-endpoint host:1 --rdzv-id=a:b=c train.py ")

    def test_files_and_directories_where_they_are_meant(self):
        self.assertEqual(self.completed("--log-dir=l"), "--log-dir=logs/")
        self.assertEqual(self.completed("--log-dir l"), "--log-dir logs/")
        self.assertEqual(self.completed("--rdzv-token-file to"), "--rdzv-token-file token.txt ")

    def test_program_is_a_file_or_the_other_command(self):
        self.assertEqual(self.completed("--nproc-per-node=2 tr"), "--nproc-per-node=2 train.py ")
        self.assertEqual(self.completed("-r 3 tr"), "-r 3 train.py ")
        self.assertEqual(self.completed("-m -- tr"), "-m -- train.py ")
        self.assertEqual(self.completed("my"), "my\\ train.py ")
        self.assertEqual(self.completed("coo"), "coordinator ")
        self.assertEqual(self.completed("pl"), "plan ")
        self.assertEqual(self.completed("--nnodes=1 coo"), "--nnodes=1 coo")

    def test_what_follows_the_program_is_its_own(self):
        self.assertEqual(self.completed("train.py --nno"), "train.py --nno")
        self.assertEqual(self.completed("train.py -x --log-dir to"),
                         "train.py -x --log-dir token.txt ")
        self.assertEqual(self.completed("-- train.py my"), "-- train.py my\\ train.py ")


class BashTest(CompletionTests, unittest.TestCase):
    argv = ["/bin/bash", "--norc", "--noprofile", "-i"]
    setup = BASH
    load = "source <(ddlaunch --print-completion bash)\n"


class BashWithBashCompletionTest(CompletionTests, unittest.TestCase):
    """As most users have it: loaded on demand, from where the package installs it."""
    argv = BashTest.argv
    setup = BASH
    load = """
mkdir -p .local/share/bash-completion/completions
ddlaunch --print-completion bash > .local/share/bash-completion/completions/ddlaunch
source /usr/share/bash-completion/bash_completion
"""

    def setUp(self):
        if not os.path.exists("/usr/share/bash-completion/bash_completion"):
            self.skipTest("no bash-completion here")
        super().setUp()


class ZshTest(CompletionTests, unittest.TestCase):
    argv = ["/bin/zsh", "-f", "-i"]
    setup = ZSH
    load = "source <(ddlaunch --print-completion zsh)\n"


class ZshFromFpathTest(CompletionTests, unittest.TestCase):
    """As it is installed: a file _ddlaunch in a directory of $fpath."""
    argv = ZshTest.argv
    setup = """
mkdir functions
ddlaunch --print-completion zsh > functions/_ddlaunch
fpath=($PWD/functions $fpath)
""" + ZSH
    load = ""


class ManualTest(unittest.TestCase):
    """The page that the build makes and installs, as its readers see it."""
    PAGE = BIN_DIR.parent / "share" / "man" / "man1" / "ddlaunch.1"

    def test_mandoc_has_nothing_to_say(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc here")
        run = subprocess.run(["mandoc", "-Tlint", self.PAGE], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual((run.returncode, run.stdout), (0, ""))

    def test_every_flag_is_there_to_be_read(self):
        if not shutil.which("mandoc"):
            self.skipTest("no mandoc here")
        text = subprocess.run(["mandoc", "-Tascii", self.PAGE], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
        text = re.sub(".\x08", "", text)  # bold and underlined, as typewriters did it
        for flag in flags_in_help() | flags_in_help("coordinator"):
            self.assertIn(flag, text)


class OtherShellsTest(unittest.TestCase):
    def test_shell_that_has_none_is_told_so(self):
        for shell in ("tcsh", "fish", ""):
            run = subprocess.run([DDLAUNCH, f"--print-completion={shell}"], check=False,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual((run.returncode, run.stdout), (2, ""))
            self.assertIn("bash", run.stderr)


if __name__ == "__main__":
    unittest.main()
