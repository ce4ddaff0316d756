"""Data-parallel training through Tutti: one rank of a small network on scikit-learn's digits.

    tutti run --hosts 2 --per-host 2 -- /usr/bin/python3 deploy/train_digits.py --strategy ring

Each rank works on its share of every global batch; gradients are averaged with all_reduce. At the
end all ranks must hold the same weights bit for bit, and the loss curve must be that of training
alone, in one process, on the same global batches.
"""

import argparse
import os
import sys
import time

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # A rank is a process; one thread each.
    os.environ.setdefault(threads, "1")

import numpy as np
from sklearn.datasets import load_digits

import tutti

BATCH = 48  # Global, so that 1, 2, 3, 4, 6 or 8 ranks share it evenly.
TRAIN = 1440
HIDDEN = 64
CLASSES = 10
RATE = 0.1
MOMENTUM = 0.9
TOLERANCE = 1e-3  # Relative, of a loss: summation orders differ, nothing else does.


def load_data():
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order]
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])


class Network:
    """Two layers; all weights are views of one vector, so that one all_reduce carries them."""

    def __init__(self, inputs):
        sizes = [inputs * HIDDEN, HIDDEN, HIDDEN * CLASSES, CLASSES]
        self.weights = np.zeros(sum(sizes), np.float32)
        self.gradient = np.zeros_like(self.weights)
        self.velocity = np.zeros_like(self.weights)
        self.cuts = np.cumsum(sizes)[:-1]
        self.inputs = inputs

    def parts(self, vector):
        w1, b1, w2, b2 = np.split(vector, self.cuts)
        return w1.reshape(self.inputs, HIDDEN), b1, w2.reshape(HIDDEN, CLASSES), b2

    def initialise(self, seed):
        random = np.random.default_rng(seed)
        w1, _, w2, _ = self.parts(self.weights)
        w1[:] = random.normal(0, self.inputs**-0.5, w1.shape)
        w2[:] = random.normal(0, HIDDEN**-0.5, w2.shape)

    def forward(self, images):
        w1, b1, w2, b2 = self.parts(self.weights)
        hidden = np.maximum(images @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, scores / scores.sum(axis=1, keepdims=True)

    def backward(self, images, labels):
        """Returns the mean loss of these images; writes its gradient to self.gradient."""
        hidden, chances = self.forward(images)
        rows = np.arange(len(labels))
        loss = -np.log(chances[rows, labels]).mean()
        error = chances
        error[rows, labels] -= 1
        error /= np.float32(len(labels))
        below = (error @ self.parts(self.weights)[2].T) * (hidden > 0)
        w1, b1, w2, b2 = self.parts(self.gradient)
        w1[:], b1[:] = images.T @ below, below.sum(axis=0)
        w2[:], b2[:] = hidden.T @ error, error.sum(axis=0)
        return loss

    def step(self):
        self.velocity *= np.float32(MOMENTUM)
        self.velocity += self.gradient
        self.weights -= np.float32(RATE) * self.velocity

    def accuracy(self, images, labels):
        return (self.forward(images)[1].argmax(axis=1) == labels).mean()


def train(network, data, epochs, rank, world_size, average, each_epoch):
    """Returns each epoch's mean loss. `average` replaces a vector by its mean over the ranks."""
    images, labels = data
    curve = []
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(TRAIN)
        losses = np.zeros(1, np.float32)
        for start in range(0, TRAIN, BATCH):
            mine = order[start : start + BATCH][rank::world_size]
            losses += network.backward(images[mine], labels[mine])
            average(network.gradient)
            network.step()
        average(losses)
        curve.append(float(losses[0]) * BATCH / TRAIN)
        each_epoch(epoch, curve[-1])
    return np.array(curve)


def train_alone(data, epochs):
    network = Network(data[0].shape[1])
    network.initialise(seed=1)
    return train(network, data, epochs, 0, 1, lambda vector: None, lambda epoch, loss: None)


def fail(message):
    print(f"train_digits: {message}", file=sys.stderr)
    sys.exit(1)


def check_same_weights(group, weights):
    everyone = np.asarray(group.all_gather(weights.view(np.uint8))).reshape(group.world_size, -1)
    for rank in range(group.world_size):
        if not np.array_equal(everyone[rank], everyone[0]):
            fail(f"the weights of rank {rank} differ from those of rank 0")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--strategy", default="auto")
    options.add_argument("--epochs", type=int, default=5)
    options = options.parse_args()

    group = tutti.join()
    if BATCH % group.world_size:
        fail(f"a batch of {BATCH} cannot be shared evenly by {group.world_size} ranks")
    data, test = load_data()
    network = Network(data[0].shape[1])
    if group.rank == 0:
        network.initialise(seed=1)
        hosts = len(set(group.hosts))
        print(f"{options.strategy}: {group.world_size} ranks on {hosts} hosts, "
              f"{network.weights.nbytes / 1024:.0f} KiB of gradients a step")
        print("epoch    loss  accuracy  seconds", flush=True)
    group.broadcast(network.weights, root=0)

    started = time.monotonic()

    def average(vector):
        group.all_reduce(vector, op="mean", strategy=options.strategy)

    def each_epoch(epoch, loss):
        if group.rank == 0:
            print(f"{epoch + 1:5}  {loss:6.4f}  {network.accuracy(*test):8.1%}  "
                  f"{time.monotonic() - started:7.2f}", flush=True)

    curve = train(network, data, options.epochs, group.rank, group.world_size, average, each_epoch)
    check_same_weights(group, network.weights)
    if group.rank == 0:
        alone = train_alone(data, options.epochs)
        difference = float(np.max(np.abs(curve - alone) / alone))
        if not difference <= TOLERANCE:
            fail(f"the loss differs from training alone by {difference:.1e}: {curve} and {alone}")
        print("All ranks hold the same weights, bit for bit; the losses are those of training "
              f"alone within {difference:.0e}.")
    group.leave()


if __name__ == "__main__":
    main()
