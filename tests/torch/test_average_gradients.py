"""tutti.average_gradients with torch tensors: gradients of parameters, dtypes, rounding."""

import unittest

import torch

from tutti.average_gradients import average_gradients


class Torch(unittest.TestCase):
    def test_gradients_of_parameters(self):
        model = torch.nn.Linear(3, 2)
        towers = []
        for batch in (torch.ones(4, 3), torch.full((4, 3), 3.0)):
            model.zero_grad()
            model(batch).sum().backward()
            towers.append([(p.grad.clone(), p) for p in model.parameters()])
        means = average_gradients(towers)
        self.assertTrue(torch.equal(means[0][0], torch.full((2, 3), 8.0)))
        for (_, parameter), own in zip(means, model.parameters()):
            self.assertIs(parameter, own)

    def test_sparse_gradients_of_an_embedding(self):
        table = torch.nn.Embedding(6, 2, sparse=True)
        towers = []
        for rows in ([1, 1, 5], [5, 0]):
            table.zero_grad()
            table(torch.tensor(rows)).square().sum().backward()
            towers.append([(table.weight.grad.clone(), table.weight)])
        (mean, parameter), = average_gradients(towers)
        self.assertIs(parameter, table.weight)
        self.assertEqual(mean._indices().tolist(), [[0, 1, 5]])
        expected = (towers[0][0][0].to_dense() + towers[1][0][0].to_dense()) / 2
        self.assertTrue(torch.allclose(mean.to_dense(), expected))
        rows, = average_gradients([[tower[0][0]] for tower in towers], sum_duplicates=False)
        self.assertEqual(rows._indices().tolist(), [[1, 1, 5, 5, 0]])
        grads = [tower[0][0].clone().requires_grad_() for tower in towers]
        ended, = average_gradients([[grad] for grad in grads])
        self.assertTrue(torch.equal(ended.detach().to_dense(), mean.to_dense()))
        with self.assertRaisesRegex(RuntimeError, "no gradient passes through"):
            torch.sparse.sum(ended).backward()
        table.weight.grad = mean
        before = table.weight.detach().clone()
        torch.optim.SGD([table.weight], 1.0).step()
        self.assertTrue(torch.allclose(table.weight.detach(), before - expected))

    def test_bf16_is_rounded_to_even(self):
        towers = [[torch.tensor([1.0], dtype=torch.bfloat16)],
                  [torch.tensor([1.0078125], dtype=torch.bfloat16)]]
        mean, = average_gradients(towers)
        self.assertTrue(torch.equal(mean, torch.tensor([1.0], dtype=torch.bfloat16)))

    def test_empty_and_missing_gradients(self):
        towers = [[torch.ones(0, 3), None, torch.tensor(2.0)],
                  [torch.ones(0, 3), torch.ones(2), torch.tensor(4.0)]]
        empty, half, scalar = average_gradients(towers, none="zeros")
        self.assertEqual(empty.shape, (0, 3))
        self.assertTrue(torch.equal(half, torch.full((2,), 0.5)))
        self.assertEqual(scalar, 3)

    def test_norms_are_those_of_subnormal_numbers_in_every_mode(self):
        towers = [[torch.tensor([3e-310, 4e-310], dtype=torch.float64)]]
        right, = average_gradients(towers, clip_norm=2.5e-310)
        torch.set_flush_denormal(True)
        try:
            mean, = average_gradients(towers, clip_norm=2.5e-310)
        finally:
            torch.set_flush_denormal(False)
        self.assertTrue(torch.equal(mean.view(torch.int64), right.view(torch.int64)))
        self.assertTrue(torch.allclose(mean * 1e300, towers[0][0] * 1e300 / 2))


if __name__ == "__main__":
    unittest.main()
