"""A program for ddlaunch tune without the SDK: it takes its micro-batch from the plan
and leaves a line for each optimizer step in the file DDL_STEP_LOG:

    step,samples,seconds,loss,peak_bytes

It computes nothing: the seconds are those of a machine that needs FIXED for a step and
one for each sample, of which 1000 are one here.

Usage: steps.py [--fixed=F] [--steps=N] [--oom-above=N] [--oom-words=TEXT]
                [--memory-file=FILE] [--bytes-per-sample=N] [--ignore-plan] [--loss-by-micro]
                [--slow-together] [--hang-at=N] [--hang-until=FILE] [--exit=CODE] [--silent]
"""

import argparse
import os
import pathlib
import signal
import sys
import time

MACHINE = 1000 << 20  # bytes of the device in --memory-file


def options():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--fixed", type=float, default=1000)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--oom-above", type=int, default=10**9)
    parser.add_argument("--oom-words", default="out of memory")
    parser.add_argument("--memory-file")
    parser.add_argument("--bytes-per-sample", type=int, default=1 << 20)
    parser.add_argument("--ignore-plan", action="store_true")
    parser.add_argument("--loss-by-micro", action="store_true")
    parser.add_argument("--slow-together", action="store_true")
    parser.add_argument("--hang-at", type=int, default=0)
    parser.add_argument("--hang-until")
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--silent", action="store_true")
    return parser.parse_args()


def main():
    given = options()
    micro = 32 if given.ignore_plan else int(os.environ["DDL_MICRO_BATCH_SIZE"])
    accumulation = int(os.environ["DDL_GRAD_ACCUM_STEPS"])
    world = int(os.environ["WORLD_SIZE"])
    if given.exit:
        print("this machine is on strike", file=sys.stderr)
        sys.exit(given.exit)
    if micro > given.oom_above:
        sys.exit(f"{given.oom_words}: {micro} samples")
    if given.memory_file:
        used = min(MACHINE, micro * given.bytes_per_sample)
        pathlib.Path(given.memory_file).write_text(f"{MACHINE} {used}\n")
    if micro == given.hang_at:
        print("hanging", flush=True)
        while not given.hang_until or not os.path.exists(given.hang_until):
            time.sleep(0.01)
    if given.silent or os.environ["RANK"] != "0":
        signal.pause()
    seconds = accumulation * (given.fixed + micro) / 1000
    seconds *= world if given.slow_together else 1
    samples = micro * accumulation * world
    peak = 0 if given.memory_file else micro * given.bytes_per_sample
    with open(os.environ["DDL_STEP_LOG"], "a", encoding="ascii") as log:
        for step in range(1, min(given.steps, 5000) + 1):
            loss = 1 / step + (micro if given.loss_by_micro else 0)
            log.write(f"{step},{samples},{seconds},{loss},{peak}\n")
    if given.steps > 5000:
        signal.pause()  # until it is stopped


main()
