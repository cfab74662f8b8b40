"""Command line of the MNIST example: `python -m examples.mnist.main --help`."""

import argparse

from examples.mnist.train import Config, train_and_evaluate


def main() -> None:
    """Read the flags and train."""
    default = Config()
    parser = argparse.ArgumentParser(description="A multilayer perceptron on real MNIST digits.")
    parser.add_argument("--epochs", type=int, default=default.epochs)
    parser.add_argument("--batch-size", type=int, default=default.batch_size)
    parser.add_argument("--learning-rate", type=float, default=default.learning_rate)
    parser.add_argument("--hidden", type=int, nargs="*", default=default.hidden)
    parser.add_argument("--seed", type=int, default=default.seed)
    flags = vars(parser.parse_args())
    train_and_evaluate(Config(**{**flags, "hidden": tuple(flags["hidden"])}))


if __name__ == "__main__":
    main()
