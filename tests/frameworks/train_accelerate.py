"""A script for Accelerate that knows nothing of its launcher: y = 3 x."""

import os

import torch
from accelerate import Accelerator

accelerator = Accelerator()
micro_batch = int(os.environ.get("DDL_MICRO_BATCH_SIZE", 2))
x = torch.linspace(-1, 1, 1024).unsqueeze(1)
data = torch.utils.data.TensorDataset(x, 3 * x)
loader = torch.utils.data.DataLoader(data, batch_size=micro_batch, shuffle=True)
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

steps = 0
for inputs, targets in loader:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    steps += accelerator.sync_gradients

weight = accelerator.unwrap_model(model).weight.detach().reshape(1)
weights = accelerator.gather(weight)
assert torch.equal(weights, weights[:1].expand_as(weights)), weights
print(f"accelerate: rank {accelerator.process_index} of {accelerator.num_processes}, "
      f"accumulation {accelerator.gradient_accumulation_steps}, {steps} steps, "
      f"weight {weight.item():.2f}", flush=True)
