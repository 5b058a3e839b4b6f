"""Means and standard deviations of the three colours, as the papers' code has them."""

Constants = tuple[tuple[float, float, float], tuple[float, float, float]]

IMAGENET: Constants = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR100: Constants = ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))
CIFAR10: Constants = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
HALF: Constants = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
