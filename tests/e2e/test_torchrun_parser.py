"""ddlaunch and torchrun read the same command line as the same request: a few
hundred lines, given to both parsers. Where they differ on purpose, the table
DIFFERENCES says so, and why.

torchrun's parser is that of Debian's python3-torch; another one (a virtual
environment's newer PyTorch) is named by DDL_TORCH_PYTHON.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

BIN_DIR = pathlib.Path(os.environ["DDL_BIN_DIR"])
PARSER = pathlib.Path(__file__).resolve().parents[1] / "support" / "torchrun_parser.py"
SCRIPT = "s.py"
# What PyTorch 2.15 has beyond 1.13, so that nobody needs it here to see one missing.
OF_NEWER_TORCHRUN = """
    --event-log-handler --log-line-prefix-template --local-ranks-filter
    --duplicate-stdout-filters --duplicate-stderr-filters --local-addr --logs-specs
    --numa-binding --signals-to-handle --shutdown-timeout --virtual-local-rank
    --print-completion""".split()


def python_with_torch():
    for python in (os.environ.get("DDL_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        # Not imported here, which takes a second; cwd must hold no module's name.
        if python and subprocess.run([python, "-c", "import importlib.util as u, sys; "
                                      "sys.exit(u.find_spec('torch') is None)"],
                                     cwd="/", check=False).returncode == 0:
            return python
    return None


# ---- intended differences ---------------------------------------------------------
# Each: what torchrun does, what ddlaunch does, and when that applies to (line,
# torchrun's understanding, ddlaunch's). A line that differs and that none of them
# explains fails the test; so does one of them that explains no line (but those of newer
# PyTorch).

def refused(one):
    return bool(one["error"])


def ambiguous_word(theirs):
    found = re.search(r"ambiguous option: (--[\w-]+)", theirs["error"])
    return found.group(1) if found else None


DIFFERENCES = {
    "-- right after the script: argparse swallows it, here the script gets it":
        lambda line, theirs, ours: not refused(ours) and not refused(theirs)
        and ours["program_args"] == ["--"] + theirs["program_args"]
        and ours["values"] == theirs["values"],
    "a script's argument that begins as several of torchrun's flags do: argparse refuses it":
        lambda line, theirs, ours: not refused(ours) and ambiguous_word(theirs)
        in [word.split("=")[0] for word in ours["program_args"]],
    "a beginning that is enough for torchrun and not here, where there are more flags":
        lambda line, theirs, ours: "is ambiguous" in ours["error"],
    "(newer) a beginning that is in two spellings of one flag: argparse refuses it":
        lambda line, theirs, ours: not refused(ours) and ambiguous_word(theirs)
        in [word.split("=")[0] for word in line["args"]],
    "streams by local rank may name any rank; torchrun takes one digit":
        lambda line, theirs, ours: not refused(ours) and "does not match" in theirs["error"],
    "switches of the environment may also be true, yes, on and their opposites":
        lambda line, theirs, ours: "invalid literal for int()" in theirs["error"]
        and not refused(ours) and "" not in line["env"].values(),
    "an empty variable is an unset one":
        lambda line, theirs, ours: "" in line["env"].values() and not refused(ours),
    "a value that makes no sense is refused at once, by flag and value":
        lambda line, theirs, ours: not refused(theirs) and re.search(
            r"^(--|PET_)[\w-]+=[^ ]*: (must |out of range|no such key)", ours["error"]),
    "several nodes with no place to meet are refused, not left to time out":
        lambda line, theirs, ours: "--rdzv-endpoint" in ours["error"] and not refused(theirs),
    "--run-path with -m or --no-python: torchrun forgets one of them":
        lambda line, theirs, ours: "contradict each other" in ours["error"],
    "what is no program is said here; torchrun leaves it to Python":
        lambda line, theirs, ours: not refused(theirs)
        and re.search("no such program|no program given", ours["error"]),
}


# ---- the lines --------------------------------------------------------------------

def fixed_lines():
    """What a person writes, and what once went wrong."""
    lines = [
        "s.py", "s.py a b", "-- s.py", "-- s.py -- -r 1", "s.py -- -r 1", "s.py -t 3 -- -r 1",
        "--no_python -- s.py -t 3 -- -r 1", "-- -- s.py", "-- --odd x", "-- -x.py",
        "s.py --r=16 --log=x --nproc_per_node=7 -m -h", "s.py -- --", "s.py --help",
        "", "--nnodes=1", "--nnodes", "--nproc_per_node", "-r", "-t", "--", "-h", "--help s.py",
        "--nproc_per_node=2 s.py", "--nproc_per_node 2 s.py", "--nproc=2 s.py", "--np 2 s.py",
        "--redirect=3 s.py", "--redirects 3 s.py", "--red=3 s.py", "--te 1 s.py", "--t 1 s.py",
        "--r 3 s.py", "--rd 3 s.py", "--rdzv_i=j s.py", "--rdzv_e=h:1 s.py", "--n 2 s.py",
        "--m s.py", "--mo s.py", "--modul s.py", "--mon=1 s.py", "--max=1 s.py", "--ma=1 s.py",
        "--no s.py", "--no_p s.py", "--nod 0 s.py", "--node=0 s.py", "--st s.py", "--sta s.py",
        "--stan s.py", "--start=fork s.py", "--start fork s.py", "--log=x s.py", "--l x s.py",
        "--ro=a s.py", "--ru s.py", "--run s.py", "--master_p=1234 s.py", "--master_a h s.py",
        "-r3 s.py", "-r 3 s.py", "-r=3 s.py", "-t3 s.py", "-mr3 s.py", "-mr 3 s.py", "-m s.py",
        "-tr3 s.py", "-mm s.py", "-mx s.py", "-x s.py", "-nproc_per_node=2 s.py", "-module s.py",
        "-r0:3,1:1 s.py", "-t 0:1,1:2 -r 0:2 s.py", "-r 4 s.py", "-r 0:4 s.py", "-r x s.py",
        "-r 0:3,12:1 s.py", "-r 0: s.py", "-r , s.py",
        "--standalone s.py", "--standalone=1 s.py", "--standalone --rdzv_id=x s.py",
        "--no_python s.py", "--no_python -m s.py", "--run_path s.py", "--run_path -m s.py",
        "--run_path --no_python s.py", "--bogus s.py", "--bogus=1 s.py", "--nproc_per_nodes=2 s.py",
        "--max_restarts=3 s.py", "--max_restarts 0 s.py", "--max_restarts=-1 s.py",
        "--max_restarts -1 s.py", "--max_restarts=x s.py", "--max_restarts=1.5 s.py",
        "--nnodes=1:1 s.py", "--nnodes=2 s.py", "--nnodes=1:4 s.py", "--nnodes=3:1 s.py",
        "--nnodes=1:2:3 s.py", "--nnodes=0 s.py", "--nnodes=-1 s.py", "--nnodes= s.py",
        "--nproc_per_node=0 s.py", "--nproc_per_node=-1 s.py", "--nproc_per_node -1 s.py",
        "--nproc_per_node=1.5 s.py", "--nproc_per_node= s.py", "--nproc_per_node=cpu s.py",
        "--nproc_per_node=gpu s.py", "--nproc_per_node=auto s.py", "--nproc_per_node=two s.py",
        "--rdzv_backend=c10d --rdzv_endpoint=h s.py", "--rdzv_backend=static s.py",
        "--rdzv_backend=zeus --rdzv_endpoint=h:1 s.py", "--rdzv_backend c10d --rdzv_endpoint h:1 s.py",
        "--rdzv_backend=etcd --rdzv_endpoint=h:1 s.py", "--rdzv_backend=etcd-v2 --rdzv_endpoint=h s.py",
        "--rdzv_endpoint=[::1]:7 --nnodes=2 s.py", "--rdzv_id= s.py", "--rdzv_id=a=b s.py",
        "--rdzv_conf=join_timeout=5,last_call_timeout=1 s.py", "--rdzv_conf=timeout=5 s.py",
        "--rdzv_conf=join_timeout s.py", "--rdzv_conf=bogus=1 s.py", "--rdzv_conf= s.py",
        "--rdzv_conf=is_host=1 s.py", "--rdzv_conf=join_timeout= s.py",
        "--monitor_interval=2 s.py", "--monitor_interval=.5 s.py", "--monitor_interval=x s.py",
        "--start_method=fork s.py", "--start_method=forkserver s.py", "--start_method=bogus s.py",
        "--role=trainer s.py", "--role= s.py", "--role --nnodes=1 s.py", "--role -- s.py",
        "--role -x s.py", "--role - s.py", "--log_dir -r 3 s.py", "--log_dir=-x s.py",
        "--role -1 s.py", "--nnodes=1 --nnodes=1:1 s.py", "-r 1 -r 2 s.py", "-m -m s.py",
        "--node_rank=0 s.py", "--node_rank=3 s.py", "--node_rank=-1 s.py", "--node_rank=x s.py",
        "--master_port=0 s.py", "--master_port=70000 s.py", "--master_port=x s.py",
        "--master_addr=10.0.0.1 --master_port=1234 --nnodes=2 --node_rank=1 s.py",
        "--nnodes=2 --master_addr=10.0.0.1 s.py", "s.py --standalone", "s.py -m",
        "--log_dir=logs -r 3 -t 3 s.py", "--log_dir logs -r3 -t1 s.py x --log_dir y",
    ]
    with_spaces = [
        ["--role", "a b", SCRIPT], ["--role=a b", SCRIPT], [SCRIPT, "a b", "", "--x="],
        ["--role", "-a b", SCRIPT], ["--role", "", SCRIPT], ["--nnodes", "", SCRIPT],
        ["", SCRIPT], ["--log_dir", "my dir", "-r", "3", SCRIPT, "-"], ["-", SCRIPT],
        ["--", "", "x"],
    ]
    return [{"args": line.split(), "env": {}} for line in lines] + [
        {"args": args, "env": {}} for args in with_spaces]


def environment_lines(options):
    """Each option by its PET_ variable, alone and against the command line."""
    texts = {"nnodes": "1:1", "nproc-per-node": "3", "rdzv-backend": "static", "rdzv-id": "j",
             "rdzv-endpoint": "h:1", "rdzv-conf": "join_timeout=3", "max-restarts": "2",
             "monitor-interval": "0.25", "start-method": "fork", "role": "r", "log-dir": "d",
             "redirects": "3", "tee": "1", "node-rank": "0", "master-addr": "h",
             "master-port": "1234"}
    for option in options:
        variable = "PET_" + option["name"].replace("-", "_").upper()
        spelt = option["spelt"][-1]
        if not option["takes_value"]:
            for text in ("0", "1", "2", "true", "yes", "off", "", "maybe"):
                yield {"args": [SCRIPT], "env": {variable: text}}
            yield {"args": [spelt, SCRIPT], "env": {variable: "0"}}
        elif option["name"] in texts:
            yield {"args": [SCRIPT], "env": {variable: texts[option["name"]]}}
            yield {"args": [f"{spelt}={texts[option['name']]}", SCRIPT], "env": {variable: "x"}}
            yield {"args": [SCRIPT], "env": {variable: ""}}


VALUES = {"nnodes": ["1", "1:1"], "nproc-per-node": ["1", "2", "cpu"],
          "rdzv-backend": ["c10d", "static"], "rdzv-endpoint": ["h:1", "[::1]:29400", "h"],
          "rdzv-id": ["j", "7", "a b"], "rdzv-conf": ["timeout=3", "join_timeout=3,is_host=0"],
          "max-restarts": ["0", "3"], "monitor-interval": ["5", "0.1", "1e3"],
          "start-method": ["spawn", "fork"], "role": ["trainer", "a b"],
          "log-dir": ["logs", "/dev/null"], "redirects": ["0", "3", "0:1,1:2"], "tee": ["1", "3"],
          "node-rank": ["0"], "master-addr": ["127.0.0.1", "::1"], "master-port": ["29500", "1"]}
SCRIPT_ARGS = ["a", "-r", "--nnodes=9", "b c", "", "3", "-m", "--help", "-", "--x=", "-1"]


def random_lines(options, count, seed=20):
    """Well-formed ones, in every spelling: in each, what comes after the script is the
    script's, whatever it looks like."""
    chance = random.Random(seed)
    options = [option for option in options if not option["takes_value"] or option["name"] in VALUES]
    for _ in range(count):
        args = []
        for option in chance.sample(options, chance.randrange(5)):
            spelt = chance.choice(option["spelt"])
            if spelt.startswith("--") and chance.random() < 0.2:
                spelt = spelt[:chance.randrange(4, len(spelt) + 1)]
            if not option["takes_value"]:
                args += [spelt]
                continue
            value = chance.choice(VALUES[option["name"]])
            joined = [spelt + ("=" if spelt.startswith("--") else "") + value]
            args += chance.choice([joined, [spelt, value]])
        args += chance.choice([[], ["--"]]) + [SCRIPT]
        args += [chance.choice(SCRIPT_ARGS) for _ in range(chance.randrange(4))]
        yield {"args": args, "env": {}}


def same_value(one, other):
    """"2" and 2, "5" and 5.0; a switch is "1" and True."""
    if isinstance(other, bool):
        return (one.lower() in ("1", "true", "yes", "on")) == other
    if isinstance(other, (int, float)):
        return float(one) == other
    if isinstance(other, list):
        return one == ",".join(other)
    return one == other


class TorchrunParserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = python_with_torch()
        if python is None:
            raise unittest.SkipTest("no Python with PyTorch here (python3-torch)")
        cls.temp = tempfile.TemporaryDirectory(prefix="ddl-parser-")
        cls.addClassCleanup(cls.temp.cleanup)
        for name in (SCRIPT, "-x.py"):
            path = pathlib.Path(cls.temp.name, name)
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
        # The parser says first which options it has, and the lines depend on them.
        theirs = subprocess.Popen([python, str(PARSER)], stdin=subprocess.PIPE, text=True,
                                  stdout=subprocess.PIPE, cwd=cls.temp.name)
        cls.options = json.loads(theirs.stdout.readline())
        cls.lines = [*fixed_lines(), *environment_lines(cls.options),
                     *random_lines(cls.options, 300)]
        cls.theirs = cls.answers(theirs, cls.lines)
        cls.ours = cls.understood_here(cls.lines)

    @classmethod
    def answers(cls, process, lines):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        out, _ = process.communicate(text, timeout=300)
        answers = [json.loads(line) for line in out.splitlines()]
        assert len(answers) == len(lines), (len(answers), len(lines))
        return answers

    @classmethod
    def understood_here(cls, lines):
        path = os.environ.get("PATH", "/usr/bin:/bin")
        lines = [{"args": line["args"], "env": {"PATH": path, **line["env"]}} for line in lines]
        host = subprocess.Popen([BIN_DIR / "parse_host"], stdin=subprocess.PIPE, text=True,
                                stdout=subprocess.PIPE, cwd=cls.temp.name)
        return cls.answers(host, lines)

    def differs(self, theirs, ours):
        """What differs, in a word; empty: nothing."""
        if theirs.get("help"):
            return "" if "help" in ours["values"] else "help"
        if refused(theirs) or refused(ours):
            return "" if refused(theirs) == refused(ours) else "accepted by one only"
        for part in ("program", "program_args"):
            if theirs[part] != ours[part]:
                return part
        defaults = {option["name"]: option["default"] for option in self.options}
        for name in theirs["values"].keys() | ours["values"].keys():
            one = ours["values"].get(name)
            other = theirs["values"].get(name, defaults.get(name))
            if one is None or not same_value(one, other):
                return name
        return ""

    def test_every_line_is_the_same_request_or_differs_as_intended(self):
        self.assertGreater(len(self.lines), 400)
        explains = {reason: 0 for reason in DIFFERENCES}
        for line, theirs, ours in zip(self.lines, self.theirs, self.ours):
            what = self.differs(theirs, ours)
            if not what:
                continue
            reasons = [reason for reason, applies in DIFFERENCES.items()
                       if applies(line, theirs, ours)]
            with self.subTest(line=line, what=what):
                self.assertTrue(reasons, f"{what} differs:\ntorchrun {theirs}\nddlaunch {ours}")
            for reason in reasons[:1]:
                explains[reason] += 1
        print("; ".join(f"{count} x {reason}" for reason, count in explains.items()))
        self.assertEqual([reason for reason, count in explains.items()
                          if count == 0 and not reason.startswith("(newer)")
                          and "DDL_TORCH_PYTHON" not in os.environ], [])

    def test_every_option_of_torchrun_is_known_here_in_both_spellings(self):
        names, lines = set(OF_NEWER_TORCHRUN), []
        for option in self.options:
            for spelt in option["spelt"]:
                names.add(spelt)
        for name in sorted(names):
            for word in (name, "--" + name[2:].replace("_", "-"), "--" + name[2:].replace("-", "_")):
                if name.startswith("--"):
                    lines.append({"args": [word, "1", SCRIPT], "env": {}})
        for line, ours in zip(lines, self.understood_here(lines)):
            with self.subTest(line=line):
                self.assertNotIn("no such flag", ours["error"])

    def test_document_names_every_flag_of_both(self):
        document = (pathlib.Path(__file__).resolve().parents[2] / "launcher" /
                    "TORCHRUN.md").read_text()
        texts = [subprocess.run([BIN_DIR / "ddlaunch", *command, "--help"], check=True, text=True,
                                stdout=subprocess.PIPE).stdout for command in ([], ["coordinator"])]
        flags = {word for line in "".join(texts).splitlines() if re.match(" +-", line)
                 for word in re.findall(r"--[a-z0-9-]*[a-z0-9]", line) if not word.endswith("rdzv")}
        flags |= {"--" + option["name"] for option in self.options} | set(OF_NEWER_TORCHRUN)
        self.assertGreater(len(flags), 45)
        named = set(re.findall(r"`(?:\w+ \w+ )?(?:-\w`, `|-\w`/`)?(--[a-z0-9-]+)", document))
        self.assertEqual(flags - named - {"--nproc"}, set())

    def test_a_script_never_loses_what_follows_it(self):
        for line, ours in zip(self.lines, self.ours):
            args = line["args"]
            if SCRIPT in args and not refused(ours) and ours["program"] == SCRIPT:
                with self.subTest(line=line):
                    self.assertEqual(args[len(args) - len(ours["program_args"]) - 1], SCRIPT)
                    self.assertEqual(args[args.index(SCRIPT) + 1:], ours["program_args"])


if __name__ == "__main__":
    unittest.main()
