"""A model and data to try the scripts with; your own module goes in its place."""

import torch
from torch.utils.data import Dataset


class Model(torch.nn.Module):
    """One linear layer. `forward` answers with the loss, as the scripts expect it."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def forward(self, inputs, labels):
        return {"loss": ((self.layer(inputs) - labels) ** 2).mean()}


class Data(Dataset):
    """32 samples: `inputs` of eight numbers, `labels` their sum. The same in every process."""

    def __init__(self):
        self.inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(2))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return {"inputs": self.inputs[index], "labels": self.inputs[index].sum(dim=0, keepdim=True)}


def model():
    """Every rank begins with the same weights."""
    torch.manual_seed(1)
    return Model()


def dataset():
    """All samples. The scripts give each rank its share."""
    return Data()
