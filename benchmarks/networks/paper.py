"""What Villarrubia et al. print: tables 1, 2, 3, 5 and 7. Only what was measured on one device is used to fit anything."""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20


class Row(NamedTuple):
    """One network: millions of parameters and MACs, depth (table 1); MiB of device and host memory (3); devices, host MiB and difference
    of the segments' sizes of the vendor's split (5); milliseconds on one device, split by the vendor, balanced (7)."""

    parameters: float
    macs: int
    depth: int
    device: float
    host: float
    devices: int
    vendor_host: float
    vendor_spread: float
    one: float
    vendor: float
    balanced: float


NETWORKS = {
    "Xception": Row(22.9, 8363, 81, 6.22, 17.72, 4, 0, 2.15, 60.11, 16.60, 12.64),
    "ResNet50": Row(25.6, 3864, 107, 7.14, 17.54, 4, 0, 1.86, 29.69, 7.60, 5.28),
    "ResNet50V2": Row(25.6, 3486, 103, 7.14, 17.96, 4, 0, 1.88, 30.94, 8.15, 6.13),
    "ResNet101": Row(44.7, 7579, 209, 7.23, 35.90, 6, 2.03, 2.34, 44.73, 11.58, 5.59),
    "ResNet101V2": Row(44.7, 7200, 205, 7.23, 36.83, 6, 2.07, 2.31, 54.94, 11.33, 5.52),
    "ResNet152": Row(60.4, 11294, 311, 7.31, 51.04, 8, 2.13, 2.21, 68.94, 12.62, 6.30),
    "ResNet152V2": Row(60.4, 10915, 307, 7.31, 52.42, 8, 2.13, 2.21, 72.84, 12.87, 6.63),
    "InceptionV3": Row(23.9, 5725, 189, 6.13, 17.97, 4, 0.56, 2.04, 36.96, 11.24, 6.72),
    "InceptionV4": Row(43.0, 12276, 252, 6.13, 36.30, 7, 0.95, 2.12, 82.73, 13.94, 8.69),
    "InceptionResNetV2": Row(55.9, 13171, 449, 6.52, 49.61, 8, 3.27, 2.85, 86.87, 21.55, 8.28),
    "DenseNet121": Row(8.1, 2835, 242, 7.04, 2.98, 2, 0, 1.70, 14.88, 8.52, 6.05),
    "DenseNet169": Row(14.3, 3361, 338, 7.04, 8.59, 3, 0, 1.82, 30.94, 12.97, 8.96),
    "DenseNet201": Row(20.2, 4292, 402, 7.04, 15.17, 4, 0, 1.88, 50.12, 14.11, 10.13),
    "EfficientNetLiteB3": Row(8.2, 1383, 238, 7.56, 2.18, 2, 0, 0.23, 10.31, 3.96, 3.88),
    "EfficientNetLiteB4": Row(13.0, 2553, 298, 7.56, 7.93, 3, 0, 0.41, 38.17, 10.99, 10.68),
}

# Table 2: filters of the synthetic networks on both sides of each drop, by their sizes in MiB; MiB of device and host memory.
SYNTHETIC_MEMORY = {
    442: (6.86, 0.0),
    452: (5.99, 1.99),
    512: (6.78, 2.25),
    522: (5.21, 5.19),
    632: (6.98, 6.95),
    642: (3.93, 11.69),
    932: (7.73, 23.06),
    942: (0.04, 31.14),
}
# Networks that need no host memory: millions of MACs (table 1), MiB of device memory (3). The best reaches 0.6 TOPS (section 4.1).
ON_THE_DEVICE = {
    "MobileNet": (568, 4.12),
    "MobileNetV2": (300, 3.88),
    "NASNetMobile": (568, 6.31),
    "EfficientNetLiteB0": (385, 5.32),
    "EfficientNetLiteB1": (600, 6.33),
    "EfficientNetLiteB2": (859, 7.38),
}
BEST_ON_THE_DEVICE = 0.6e12
# Section 4.1: the synthetic networks reach 1.4 TOPS before the first drop, which is behind the network of 442 filters.
SYNTHETIC_BEST = (442, 1.4e12)
BATCH = 15
