"""The command line: the parser of `toile` and of each subcommand.

This module imports nothing that takes long to load. The error for a mistyped name suggests the most
similar existing name. Completion scripts are generated from these parsers (see `completions`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, NoReturn

from toile.command import example_catalog
from toile.command.failures import UsageError
from toile.engine.suggestions import did_you_mean
from toile.version import __version__

SHELLS = ("bash", "zsh", "fish")
FORMATS = ("msgpack", "checkpoint", "safetensors", "npz", "torch", "onnx")
PROCESSORS = ("native", "x86-64-v2", "x86-64-v3", "x86-64-v4", "armv8-a")
OLDEST_YEAR = 2019
READ_ONLY = ("torch", "onnx")


class OneOf:
    """The type of an argument that is one of several names."""

    def __init__(self, names: Callable[[], Sequence[str]] | Sequence[str]):
        self._names = names

    @property
    def names(self) -> Sequence[str]:
        return self._names() if callable(self._names) else self._names

    def __call__(self, text: str) -> str:
        if text in self.names or not self.names:  # none: the examples are not installed
            return text
        near = did_you_mean(text, self.names)
        known = "" if near else f" one of {', '.join(self.names)}"
        raise argparse.ArgumentTypeError(f"needed{known or ' a known name'}, got {text!r}{near}")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are raised, in one line."""

    def __init__(self, **options: Any):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        self.subcommands: dict[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing the usage and exiting."""
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")

    @property
    def options(self) -> dict[str, argparse.Action]:
        """The options by their names, --help included."""
        return {name: a for a in self._actions for name in a.option_strings}

    @property
    def positionals(self) -> list[argparse.Action]:
        """The arguments without a name, in order; not the subcommand."""
        return [a for a in self._actions if not a.option_strings and a.dest != "command"]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, with the subcommand as `command` and the function to call as `action`."""
    parser = command_parser()
    argv, rest = _before_program(argv)
    _check_names(parser, argv)
    args = parser.parse_args(argv)
    args.program_arguments = rest
    if args.command == "run" and (args.script is None) is (args.module is None):
        parser.subcommands["run"].error("needed a Python file, or -m and a module")
    if args.command is None:
        parser.print_help()
        parser.exit(0)
    return args


def _before_program(argv: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Split the command line of `toile run` behind the program: the rest is for the program."""
    words = [i for i, token in enumerate(argv)
             if not token.startswith("-") and argv[max(i - 1, 0)] != "--since"]
    if not words or argv[words[0]] != "run":
        return argv, []
    end = words[1] + 1 if len(words) > 1 else len(argv)
    return argv[:end], list(argv[end:])


def _check_names(parser: Parser, argv: Sequence[str]) -> None:
    """For an unknown subcommand or option, raise an error that suggests a similar name."""
    for i, token in enumerate(argv):
        if token == "--":
            return
        if parser.subcommands and not token.startswith("-"):
            if token not in parser.subcommands:
                near = did_you_mean(token, parser.subcommands)
                parser.error(f"needed a command, got {token!r}{near}")
            return _check_names(parser.subcommands[token], argv[i + 1 :])
        name = token.partition("=")[0]
        if token.startswith("--") and " " not in token and name not in parser.options:
            near = did_you_mean(name, parser.options)
            parser.error(f"there is no option {name}{near}")


def command_parser() -> Parser:
    """The parser of `toile`."""
    parser = Parser(
        prog="toile", epilog="`toile COMMAND --help` shows the arguments of a command and an "
        "example.\n\nexample:\n  toile new mnist digits",
        description="Neural networks in the style of Flax: start projects, convert weights, "
        "inspect kernels, serve models.")
    parser.add_argument("--version", action="version", version=f"toile {__version__}")
    _add_debug(parser, default=False)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for add in (_new, _examples, _run, _doctor, _cache, _convert, _explain, _export, _serve,
                _completion):
        added = add(commands)
        _add_debug(added, default=argparse.SUPPRESS)
        parser.subcommands[added.prog.split()[-1]] = added
    return parser


def _add_debug(parser: Parser, default: Any) -> None:
    parser.add_argument("--debug", action="store_true", default=default,
                        help="show the full traceback if an error occurs")


def _added(commands: Any, name: str, action: str, text: str, more: str, example: str) -> Parser:
    """Add a subcommand: its line in the list of commands, its description, and an example."""
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    title = "examples" if "\n" in example else "example"
    parser: Parser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.{more and chr(10) + more}",
        epilog=f"{title}:\n{lines}")
    parser.set_defaults(action=action)
    return parser


def _new(commands: Any) -> Parser:
    parser = _added(
        commands, "new", "new", "start a project from an example",
        "The project contains the example's code, data and tests. It does not need the repository.",
        "toile new mnist digits")
    parser.add_argument("example", metavar="EXAMPLE", type=OneOf(example_catalog.names),
                        help="name of an example; `toile examples` lists them")
    parser.add_argument("folder", metavar="FOLDER",
                        help="folder for the project, which must be empty or not exist yet")
    return parser


def _examples(commands: Any) -> Parser:
    return _added(commands, "examples", "list_examples",
                  "list the examples with their tasks and results", "",
                  "toile examples")


def _run(commands: Any) -> Parser:
    parser = _added(
        commands, "run", "run", "use toile to run a program that was written for JAX and Flax",
        "In the program and in all packages that it imports, `import jax` and `import flax`\n"
        "import toile, whether or not jax and flax are installed. The program is not changed.",
        "toile run train.py --learning_rate=0.1\ntoile run -m my_package.train\n"
        "toile run --since 2020 old_train.py")
    parser.add_argument("--since", metavar="YEAR", type=_year,
                        help="offer the names that JAX and Flax had in this year and have removed")
    parser.add_argument("script", metavar="SCRIPT", nargs="?",
                        help="a Python file; all arguments after it are passed to the program")
    parser.add_argument("-m", dest="module", metavar="MODULE",
                        help="a module to run instead of a file, as with python -m")
    return parser


def _year(text: str) -> int:
    if not text.isdigit() or not OLDEST_YEAR <= int(text) <= date.today().year:
        raise argparse.ArgumentTypeError(
            f"needed a year from {OLDEST_YEAR} to {date.today().year}, got {text!r}")
    return int(text)


def _doctor(commands: Any) -> Parser:
    return _added(commands, "doctor", "doctor",
                  "check this machine, and explain how to fix any problems", "",
                  "toile doctor")


def _cache(commands: Any) -> Parser:
    parser = _added(
        commands, "cache", "cache", "show or clear the cache of compiled kernels",
        "Programs compile removed kernels again when they need them.",
        "toile cache\ntoile cache clear --yes")
    parser.add_argument("what", metavar="clear", nargs="?", type=OneOf(("clear",)),
                        help="remove all kernels; if omitted, the cache is only shown")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask before clearing")
    return parser


def _convert(commands: Any) -> Parser:
    parser = _added(
        commands, "convert", "convert", "convert a file of weights to another format",
        "The suffix determines the format: .msgpack, .safetensors or .npz. PyTorch files (.pt\n"
        "and .pth) and ONNX files can be read, but not written. In a folder, checkpoints such as\n"
        "checkpoint_100 are read or written. Nested names are joined by '/'.",
        "toile convert model.pt model.safetensors\n"
        "toile convert runs/mnist params.npz --only state/params")
    parser.add_argument("source", metavar="SOURCE", help="a file, or a folder of checkpoints")
    parser.add_argument("target", metavar="TARGET",
                        help="the file to write, or a folder of checkpoints")
    parser.add_argument("--from", dest="source_format", metavar="FORMAT", type=OneOf(FORMATS),
                        help=f"format of SOURCE: {', '.join(FORMATS)}")
    writable = [f for f in FORMATS if f not in READ_ONLY]
    parser.add_argument("--to", dest="target_format", metavar="FORMAT", type=OneOf(writable),
                        help=f"format of TARGET: {', '.join(writable)}")
    parser.add_argument("--only", metavar="NAME", help="convert only this part of the tree, for "
                        "example params, or state/params/Dense_0")
    parser.add_argument("--separator", metavar="TEXT", default="/",
                        help="text that joins nested names in flat files (default: %(default)s)")
    parser.add_argument("--step", type=int, metavar="N", help="number of the checkpoint to "
                        "read (default: the newest) or to write (default: 0)")
    parser.add_argument("--force", action="store_true", help="replace TARGET if it exists")
    return parser


def _explain(commands: Any) -> Parser:
    parser = _added(
        commands, "explain", "explain", "show the kernels that a function compiles to",
        "The function is compiled for example arguments, but it is not run. The arguments come\n"
        "from --args, or from a function example_args() in the file, which returns a tuple.",
        'toile explain model.py:loss --args "jnp.ones((8, 3)), scale=2.0"')
    parser.add_argument("function", metavar="FILE:FUNCTION",
                        help="a Python file, and a function in it, as in model.py:loss")
    parser.add_argument("--args", metavar="EXPR", dest="arguments",
                        help="the arguments, written as in a call; they can use toile, jnp, np "
                        "and names from the file")
    return parser


def _serve(commands: Any) -> Parser:
    parser = _added(
        commands, "serve", "serve", "serve the model in a folder over HTTP",
        "The protocol is that of OpenAI's completions: /v1/completions, /v1/chat/completions (if\n"
        "the folder contains a chat template), /v1/models and /health. After SIGTERM or\n"
        "Ctrl-C, the server finishes current answers and exits. There is no encryption and no\n"
        "authentication.",
        "toile serve gpt2 --port 8000")
    parser.add_argument("folder", metavar="FOLDER",
                        help="folder with config.json, weights and tokenizer.json")
    parser.add_argument("--loader", metavar="MODULE:FUNCTION",
                        help="function that loads the model (default: load in the example "
                        "language_model)")
    parser.add_argument("--host", default="127.0.0.1",
                        help="address to listen at (default: %(default)s, this machine only)")
    parser.add_argument("--port", type=int, default=8000, metavar="N",
                        help="port to listen at, 0 for any free one (default: %(default)s)")
    parser.add_argument("--name", help="name of the model (default: the name of the folder)")
    parser.add_argument("--dtype", help="dtype of the parameters, such as bfloat16")
    parser.add_argument("--slots", type=int, default=8, metavar="N",
                        help="number of texts that are generated at once (default: %(default)s)")
    parser.add_argument("--length", type=int, default=2048, metavar="N",
                        help="largest number of tokens of a prompt and its continuation "
                        "(default: %(default)s)")
    parser.add_argument("--queue", type=int, default=64, metavar="N",
                        help="number of prompts that may wait; others get the status 429 "
                        "(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="N",
                        help="longest time for an answer (default: %(default)s)")
    return parser


def _export(commands: Any) -> Parser:
    parser = _added(
        commands, "export", "export", "write a function as a program that runs without toile",
        "The suffix of TARGET determines the format: .py for a Python file that needs NumPy only,\n"
        "with its weights in an .npz file; .onnx for an ONNX file; .so (.dylib on macOS) for a\n"
        "shared library with a C header; .o for an object file, a C file and a header. The\n"
        "arguments come from --args, or from a function example_args() in the file, which returns\n"
        "a tuple.",
        'toile export model.py:predict predict.onnx --args "jnp.ones((1, 28, 28, 1))"\n'
        "toile export model.py:apply net.py --params weights.safetensors --free-batch\n"
        "toile export model.py:apply net.so --params weights.safetensors --processor native")
    parser.add_argument("function", metavar="FILE:FUNCTION",
                        help="a Python file, and a function in it, as in model.py:predict")
    parser.add_argument("target", metavar="TARGET",
                        help="the file to write: .py, .onnx, .so, .dylib or .o")
    parser.add_argument("--args", metavar="EXPR", dest="arguments",
                        help="the arguments after the parameters, written as in a call")
    parser.add_argument("--params", metavar="FILE",
                        help="a file of weights, which become the first argument of the function")
    parser.add_argument("--free-batch", action="store_true",
                        help="accept any size of the first axis of the first argument "
                             "(with --params, of the first one after the parameters)")
    parser.add_argument("--processor", metavar="NAME", type=OneOf(PROCESSORS),
                        help="the processors that can run a C library: "
                        f"{', '.join(PROCESSORS)} (default: x86-64-v3 or armv8-a)")
    parser.add_argument("--force", action="store_true", help="replace TARGET if it exists")
    return parser


def _completion(commands: Any) -> Parser:
    parser = _added(
        commands, "completion", "completion", "print a completion script for a shell", "",
        'eval "$(toile completion bash)"            # in ~/.bashrc\n'
        'source <(toile completion zsh)             # in ~/.zshrc\n'
        "toile completion fish | source             # in ~/.config/fish/config.fish")
    parser.add_argument("shell", metavar="SHELL", type=OneOf(SHELLS),
                        help=f"the shell: {', '.join(SHELLS)}")
    return parser
