"""The handwritten digits that scikit-learn carries: 1 797 grey images of 8x8 pixels, split into training and held-out ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 2024


class Digits(NamedTuple):
    """Images are float32 [N, 1, 8, 8] in 0..1; labels are int64 [N]."""

    train_images: np.ndarray
    test_images: np.ndarray
    train_labels: np.ndarray
    test_labels: np.ndarray


def load() -> Digits:
    """Return the split that the network was trained with: 1 257 images to train on, 540 held out, classes balanced."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    return Digits(*train_test_split(images, labels, test_size=0.3, random_state=SEED, stratify=labels))
