"""Fits a line to points that are divided among the ranks; checks slope and offset."""

import numpy
import tutti

with tutti.join() as group:
    x = numpy.random.default_rng(group.rank).uniform(-1, 1, 1000)
    y = 3 * x + 2
    model = numpy.zeros(2)
    for _ in range(200):
        error = model[0] * x + model[1] - y
        gradient = numpy.array([(error * x).mean(), error.mean()])
        model -= group.all_reduce(gradient, op="mean")
    assert abs(model - [3, 2]).max() < 1e-6, model
    print(f"slope {model[0]:.3f}, offset {model[1]:.3f} of {group.world_size} ranks")
