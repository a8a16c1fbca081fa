"""A script for JAX that knows nothing of its launcher: y = 3 x, by one array that
lies across all processes."""

import os
import sys

import jax

jax.distributed.initialize()
if "fail-once" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if jax.process_index() == 1:
        os._exit(3)

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

mesh = Mesh(np.array(jax.devices()), ("data",))
by_rows = NamedSharding(mesh, PartitionSpec("data"))
random = np.random.default_rng(jax.process_index())


@jax.jit
def train_step(weight, x):
    gradient = jax.grad(lambda w: jnp.mean((w * x - 3 * x) ** 2))(weight)
    return weight - 0.3 * gradient


weight = jax.device_put(jnp.zeros(()), NamedSharding(mesh, PartitionSpec()))
for _ in range(50):
    rows = random.uniform(-1, 1, 8).astype(np.float32)
    weight = train_step(weight, jax.make_array_from_process_local_data(by_rows, rows))
print(f"jax: process {jax.process_index()} of {jax.process_count()}, "
      f"{jax.device_count()} devices, weight {float(weight):.2f}", flush=True)
