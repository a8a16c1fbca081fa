"""Reads command lines as torchrun does and says what it understood: for the tests
that compare ddlaunch with it. It starts nothing. Runs by a Python that has PyTorch.

stdin, one JSON object a line: {"args": [...], "env": {...}}; stdout, first what
the parser knows, one object for each option, then one a line:
  {"values": {"nnodes": "2"}, "program": "x.py", "program_args": [...], "error": ""}
`values` are what differs from the defaults. `error`: the parser or the checks that
follow it before anything starts refuse the line.
"""

import contextlib
import io
import json
import logging
import os
import sys

from torch.distributed import run


def options(parser):
    return [{"name": action.dest.replace("_", "-"), "spelt": action.option_strings,
             "takes_value": action.nargs != 0, "default": action.default}
            for action in parser._actions if action.option_strings and action.dest != "help"]


def understand(line, defaults):
    for name in list(os.environ):
        if name.startswith("PET_"):
            del os.environ[name]
    os.environ.update(line["env"])
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            args = run.get_args_parser().parse_args(line["args"])
    except SystemExit as end:
        if end.code == 0:
            return {"help": True, "error": ""}
        return {"error": (said.getvalue().strip().splitlines() or ["?"])[-1]}
    except ValueError as error:  # PET_STANDALONE=yes
        return {"error": str(error)}
    given = {name.replace("_", "-"): value for name, value in vars(args).items()
             if value != defaults.get(name.replace("_", "-"))}
    understood = {"program": given.pop("training-script", None),
                  "program_args": given.pop("training-script-args", []),
                  "values": given, "error": ""}
    try:
        with contextlib.redirect_stderr(said):
            run.config_from_args(args)
    except Exception as error:  # assert, ValueError and others, as it happens
        understood["error"] = f"{type(error).__name__}: {error}"
    return understood


def main():
    logging.disable(logging.CRITICAL)
    known = options(run.get_args_parser())
    print(json.dumps(known))
    defaults = {option["name"]: option["default"] for option in known}
    defaults["training-script-args"] = []
    for line in sys.stdin:
        print(json.dumps(understand(json.loads(line), defaults)))


if __name__ == "__main__":
    main()
