"""A script for TensorFlow that knows nothing of its launcher: y = 3 x, by
MultiWorkerMirroredStrategy and a training loop of its own."""

import os
import sys

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
if "fail-once" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if strategy.cluster_resolver.task_id == 1:
        os._exit(3)

x = tf.linspace(-1.0, 1.0, 256)[:, tf.newaxis]
data = tf.data.Dataset.from_tensor_slices((x, 3.0 * x)).repeat()
data = strategy.experimental_distribute_dataset(data.batch(8 * strategy.num_replicas_in_sync))
with strategy.scope():
    weight = tf.Variable(0.0)


@tf.function
def train_step(inputs, targets):
    def on_replica(inputs, targets):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * inputs - targets) ** 2)
        gradient = tape.gradient(loss, weight)
        context = tf.distribute.get_replica_context()
        weight.assign_sub(0.3 * context.all_reduce("MEAN", gradient))

    strategy.run(on_replica, args=(inputs, targets))


batches = iter(data)
for _ in range(50):
    train_step(*next(batches))
print(f"tensorflow: worker {strategy.cluster_resolver.task_id} of "
      f"{strategy.num_replicas_in_sync}, weight {weight.numpy():.2f}", flush=True)
