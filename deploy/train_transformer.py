"""Trains a small language model on Tutti's own documentation, with torch.distributed.

    tutti run --per-host 2 -- python3 deploy/train_transformer.py
    torchrun --nproc-per-node 2 deploy/train_transformer.py --parallel fsdp2

The model reads and writes characters, and starts from random weights. Every rank works on its share
of each batch. `--backend gloo` does the same with torch's own backend. At the end the model writes
a text of its own. With `--reproducible` the parameters are the same, to the bit, on any number of
hosts: the SHA-256 that is printed tells. Needs torch 2.9 or newer; runs on CPUs.
"""

import argparse
import hashlib
import os
import pathlib
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # A rank is a process; one thread each.

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WIDTH = 128
HEADS = 4
LAYERS = 3
CONTEXT = 64  # Characters that the model sees.
BATCH = 48  # Global, so that 1, 2, 3, 4, 6 or 8 ranks share it evenly.
RATE = 4e-3
REPORTS = 20
TEMPERATURE = 0.6


class Model(nn.Module):
    """A decoder: scores of the next character at each place of a text."""

    def __init__(self, characters):
        super().__init__()
        self.character = nn.Embedding(characters, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, characters)

    def forward(self, text):
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.character(text) + self.place(torch.arange(length))
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.scores(self.norm(x))


class Text:
    """A text as numbers of characters, and the batches cut from it."""

    def __init__(self, path):
        files = sorted(path.glob("*.md")) if path.is_dir() else [path]
        try:
            self.text = "".join(file.read_text(encoding="utf-8") for file in files)
        except (OSError, UnicodeDecodeError) as error:
            fail(f"cannot read {path}: {error}; give another --text")
        self.characters = sorted(set(self.text))
        self.numbers = self.encode(self.text)
        if len(self.numbers) <= CONTEXT:
            fail(f"{path} has {len(self.numbers)} characters; give a text of more than {CONTEXT}")

    def encode(self, text):
        number = {character: i for i, character in enumerate(self.characters)}
        return torch.tensor([number[character] for character in text], dtype=torch.long)

    def decode(self, numbers):
        return "".join(self.characters[i] for i in numbers)

    def batch(self, step):
        """This rank's share of a step's batch: inputs, and the characters that follow them."""
        random = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.numbers) - CONTEXT, (BATCH,), generator=random)
        mine = starts[dist.get_rank()::dist.get_world_size()]
        parts = self.numbers[mine[:, None] + torch.arange(CONTEXT + 1)]
        return parts[:, :-1], parts[:, 1:]


def parallelize(model, how):
    """The model as torch trains it over all ranks: replicated, or with sharded parameters."""
    if how == "ddp":
        return DistributedDataParallel(model)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def mean_over_ranks(value):
    dist.all_reduce(value)
    return value.item() / dist.get_world_size()


def train(model, text, steps, report):
    """Calls report(step, loss) some REPORTS times, with the mean loss since the last call."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    losses = []
    for step in range(1, steps + 1):
        inputs, following = text.batch(step)
        loss = cross_entropy(model(inputs).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step in (1, steps) or step % max(1, steps // REPORTS) == 0:
            report(step, mean_over_ranks(torch.stack(losses).mean()))
            losses.clear()


@torch.no_grad()
def write(model, text, start, length):
    """A text by the model; every rank must call it, for sharded parameters are gathered."""
    random = torch.Generator().manual_seed(0)
    numbers = text.encode(start).tolist()
    for _ in range(length):
        scores = model(torch.tensor([numbers[-CONTEXT:]]))[0, -1]
        chances = torch.softmax(scores / TEMPERATURE, dim=0)
        numbers.append(torch.multinomial(chances, 1, generator=random).item())
    return text.decode(numbers)


def digest(model):
    """The SHA-256 of all parameters; every rank must call it."""
    total = hashlib.sha256()
    for parameter in model.parameters():
        whole = parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter
        total.update(whole.detach().numpy().tobytes())
    return total.hexdigest()


def fail(message):
    """Ends the rank. The first of each host says why and fails; the launcher then ends them all."""
    if os.environ.get("LOCAL_RANK", "0") != "0":
        sys.exit(0)
    print(f"train_transformer: {message}", file=sys.stderr)
    sys.exit(1)


def read_options():
    docs = pathlib.Path(__file__).resolve().parent.parent / "docs"
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--parallel", choices=("ddp", "fsdp2"), default="ddp",
                         help="replicate the model, or shard its parameters (default: %(default)s)")
    options.add_argument("--backend", default="tutti",
                         help="of torch.distributed: tutti, gloo (default: %(default)s)")
    options.add_argument("--reproducible", action="store_true",
                         help="reduce in the order of the ranks: the same bits on any hosts")
    options.add_argument("--steps", type=int, default=400, help="default: %(default)s")
    options.add_argument("--sample", type=int, default=400,
                         help="characters to write at the end (default: %(default)s)")
    options.add_argument("--text", type=pathlib.Path, default=docs,
                         help="a file, or a folder of Markdown files (default: Tutti's docs)")
    given = options.parse_args()
    if given.steps < 1 or given.sample < 0:
        fail("--steps must be 1 or more, and --sample 0 or more")
    return given


def import_backend(name):
    if name != "tutti":
        return
    try:
        import tutti.torch  # Not needed where the package is installed.
    except ImportError as error:
        fail(f"cannot import tutti.torch ({error}); install the wheel, or set PYTHONPATH")


def print_heading(model, text, options):
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.parallel} with {options.backend}: {dist.get_world_size()} ranks, "
          f"{parameters:,} parameters, {len(text.text):,} characters of "
          f"{len(text.characters)} kinds\n\n step    loss  seconds", flush=True)


def main():
    options = read_options()
    text = Text(options.text)
    import_backend(options.backend)
    dist.init_process_group(options.backend)
    world_size = dist.get_world_size()
    if BATCH % world_size:
        fail(f"a batch of {BATCH} cannot be shared evenly by {world_size} ranks")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(options.reproducible)
    model = Model(len(text.characters))
    is_first = dist.get_rank() == 0
    if is_first:
        print_heading(model, text, options)
    started = time.monotonic()

    def report(step, loss):
        if is_first:
            print(f"{step:5}  {loss:6.4f}  {time.monotonic() - started:7.1f}  "
                  f"{'█' * round(10 * loss)}", flush=True)

    train(parallelize(model, options.parallel), text, options.steps, report)
    sample = write(model, text, text.text[:1], options.sample)
    sha256 = digest(model)
    if is_first:
        print(f"\nSHA-256 of the parameters: {sha256}")
        print(f"\nWhat the model writes:\n\n{sample}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
