"""A small net trained by PyTorch's DistributedDataParallel over Gloo.

Usage: ddp.py DIR [--steps=N] [--tcp] [--raise-on=RANK] [--fail-once=RANK] [--until=FILE]

Every rank keeps the same model, whatever the world: checked at the end. After each
step rank 0 leaves a checkpoint in DIR; a start goes on from it.
"""

import argparse
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FAIL_AT = 3  # the step at which a rank fails that is told to


def train(options, rank, world):
    directory = pathlib.Path(options.dir)
    checkpoint = directory / "checkpoint.pt"
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        first = state["step"]
    dist.barrier()  # all have read it
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    with open(directory / "told", "a", encoding="ascii") as told:
        told.write(f"{os.environ['DDL_ROUND']} {rank} {world} {restarts} "
                   f"{os.environ['GROUP_RANK']} {os.getpid()}\n")
    inputs = torch.randn(64, 4)
    targets = inputs.sum(dim=1, keepdim=True)
    step, is_done = first, False
    losses = []
    while not is_done:
        if rank == options.raise_on and step == FAIL_AT:
            raise ValueError("the sample is broken")
        if rank == options.fail_once and step == FAIL_AT and restarts == "0":
            os._exit(7)
        optimizer.zero_grad()
        loss = ((model(inputs[rank::world]) - targets[rank::world]) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        step += 1
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)
        if options.until:
            time.sleep(0.02)
            ended = torch.tensor([float((directory / options.until).exists())])
            dist.all_reduce(ended, dist.ReduceOp.MAX)
            is_done = ended.item() > 0
        else:
            is_done = step >= options.steps
    own = torch.cat([p.detach().flatten() for p in model.parameters()])
    everybodys = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(everybodys, own)
    assert all(torch.equal(own, other) for other in everybodys)
    if step - first > 5:
        assert losses[-1] < losses[0]
    print(f"rank {rank} of {world}: steps {first} to {step}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--raise-on", type=int)
    parser.add_argument("--fail-once", type=int)
    parser.add_argument("--until")
    options = parser.parse_args()
    torch.set_num_threads(1)
    where = {}
    if options.tcp:
        where = {"init_method":
                 f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
                 "rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", **where)
    train(options, dist.get_rank(), dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
