"""Trains a perceptron of scikit-learn on its digits. One line is for ablate: the print."""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, required=True)
parser.add_argument("--activation", required=True)
parser.add_argument("--lr", type=float, required=True)
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--resume", type=Path, required=True)
said = parser.parse_args()

images, labels = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(
    images / 16, labels, test_size=0.2, random_state=0
)
network = MLPClassifier(
    hidden_layer_sizes=(said.hidden,),
    activation=said.activation,
    learning_rate_init=said.lr,
    random_state=said.seed,
)
done = 0
if said.resume.exists():
    # The script's own file, in the folder of its trial.
    done, network = pickle.loads(said.resume.read_bytes())
for epoch in range(done + 1, said.epochs + 1):
    order = np.random.default_rng([said.seed, epoch]).permutation(len(x_train))
    network.partial_fit(x_train[order], y_train[order], classes=np.arange(10))
    part = said.resume.with_suffix(".part")
    part.write_bytes(pickle.dumps((epoch, network)))
    # In one step: the script may be ended at any time.
    part.replace(said.resume)
    print(json.dumps({"epoch": epoch, "accuracy": network.score(x_test, y_test)}))
