"""What a network is worth on labelled samples: the metrics of ``deeploy evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from deeploy.errors import UsageError

Metric = Callable[[Sequence[np.ndarray], np.ndarray], float]  # of the outputs, stacked over samples, and the labels


def agreement(outputs: Sequence[np.ndarray], labels: np.ndarray) -> float:
    """The share of labels that are those of the first output, which holds labels itself, as many per sample as there are given."""
    if outputs[0].size != labels.size:
        raise UsageError(
            f"labels of shape {list(labels.shape)} for labels of {list(outputs[0].shape)}", "Give as many labels as the output has."
        )
    return float(np.mean(outputs[0].ravel() == labels.ravel()))


def top1(outputs: Sequence[np.ndarray], labels: np.ndarray) -> float:
    """The share of samples whose largest element of the first output is the label's.

    Args:
        labels: the number of the class per sample, or one row per sample whose largest element it is.
    """
    scores = outputs[0].reshape(len(outputs[0]), -1)
    return float(np.mean(scores.argmax(axis=1) == _class_numbers_of(labels, scores)))


def auc(outputs: Sequence[np.ndarray], labels: np.ndarray) -> float:
    """The area under the curve of true over false positives.

    That is how likely a sample of a class scores above one that is not of it; ties count half.
    The first output is one score per sample for labels 0 and 1, or one per class, of which the mean is taken (one against the rest).
    """
    scores = outputs[0].reshape(len(outputs[0]), -1).astype(np.float64)
    if scores.shape[1] == 1:
        return _rank_statistic(scores[:, 0], labels.reshape(-1) > 0)
    classes = _class_numbers_of(labels, scores)
    areas = [
        _rank_statistic(scores[:, number], classes == number)
        for number in range(scores.shape[1])
        if 0 < (classes == number).sum() < len(classes)
    ]
    if not areas:
        raise UsageError("--metric auc: all samples are of one class", "Give samples of several classes.")
    return float(np.mean(areas))


def mse(outputs: Sequence[np.ndarray], labels: np.ndarray) -> float:
    """The mean of the squared differences between the first output and the labels."""
    if outputs[0].size != labels.size:
        raise UsageError(
            f"--metric mse: labels of shape {list(labels.shape)} for outputs of {list(outputs[0].shape)}", "Give one label per element."
        )
    return float(np.mean(np.square(outputs[0].astype(np.float64).ravel() - labels.astype(np.float64).ravel())))


METRICS: Mapping[str, Metric] = {"top1": top1, "auc": auc, "mse": mse}


def _class_numbers_of(labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """The number of the class of every sample."""
    if labels.size == len(scores):
        classes = labels.reshape(-1).astype(np.int64)
        if classes.min(initial=0) < 0 or classes.max(initial=0) >= scores.shape[1]:
            raise UsageError(
                f"labels from {classes.min()} to {classes.max()} for scores of {scores.shape[1]} classes",
                "Number the classes from 0, or name another output with --output.",
            )
        return classes
    if labels.size == scores.size:
        class_numbers: np.ndarray = labels.reshape(scores.shape).argmax(axis=1)
        return class_numbers
    raise UsageError(
        f"labels of shape {list(labels.shape)} for {len(scores)} samples of {scores.shape[1]} scores",
        "Give the number of the class per sample, or one row of scores.",
    )


def _rank_statistic(scores: np.ndarray, is_positive: np.ndarray) -> float:
    """The statistic of Mann and Whitney over the number of pairs: from the sum of the ranks of what is positive."""
    if is_positive.all() or not is_positive.any():
        raise UsageError("--metric auc: all samples are of one class", "Give samples of several classes.")
    _, which, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[which.reshape(-1)]  # of ties, the mean of their ranks
    positives = int(is_positive.sum())
    above = float(ranks[is_positive].sum()) - positives * (positives + 1) / 2
    return above / (positives * (len(scores) - positives))
