"""Trains with Lightning or accelerate: python frameworks.py lightning|accelerate tutti|gloo DIR, a
rank of torchrun. Rank 0 prints what it has learnt and measured as JSON."""

import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset


def data():
    torch.manual_seed(7)
    return TensorDataset(torch.randn(64, 10))


def train_with_lightning(backend, directory):
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(10, 1)

        def training_step(self, batch, _):
            loss = self.layer(batch[0]).square().mean()
            self.log("loss", loss, sync_dist=True, on_epoch=True)
            return loss

        def validation_step(self, batch, _):
            self.log("value", self.layer(batch[0]).mean(), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    lightning.seed_everything(3, verbose=False)
    model, loader = Model(), DataLoader(data(), 8)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend=backend),
        max_epochs=2, enable_progress_bar=False, enable_model_summary=False, logger=False,
        default_root_dir=directory)
    trainer.fit(model, loader, loader)
    return {"values": torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist(),
            "metrics": {name: float(value) for name, value in trainer.callback_metrics.items()},
            "backend": dist.get_backend()}


def train_with_accelerate(backend, directory):
    dist.init_process_group(backend)  # First: accelerate takes the group that there is.
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(3)
    model = torch.nn.Linear(10, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters()), DataLoader(data(), 8))
    for _ in range(2):
        for batch, in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    accelerator.save_state(directory + "/" + backend)
    accelerator.wait_for_everyone()  # Rank 0 alone saves, and accelerate does not wait for it.
    accelerator.load_state(directory + "/" + backend)
    ranks = accelerator.gather_for_metrics(torch.tensor([accelerator.process_index])).tolist()
    told = {"values": torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist(),
            "metrics": ranks, "backend": dist.get_backend()}
    accelerator.end_training()
    return told


def main():
    warnings.filterwarnings("ignore")
    framework, backend, directory = sys.argv[1:]
    told = globals()["train_with_" + framework](backend, directory)
    if os.environ["RANK"] == "0":
        print(json.dumps(told), flush=True)
    if dist.is_initialized():  # accelerate's end_training() has destroyed its group.
        dist.destroy_process_group()
    if backend == "gloo":  # Its threads may abort a process that exits: pytorch/pytorch#179291.
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    if sys.argv[2] == "tutti":
        import tutti.torch  # noqa: F401: registers it.
    main()
