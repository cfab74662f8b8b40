"""`toile completion`: scripts that complete the command line in bash, zsh and fish.

The scripts are generated from the parsers. They complete commands, options, and arguments that must
be one of several names. Other arguments are completed as file names; other values of options are
not completed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from toile.command.parsers import OneOf, Parser, command_parser


def completion(args: argparse.Namespace) -> None:
    """Print the script for a shell."""
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](command_parser()))


# ---- what the parsers have
def names_of(action: argparse.Action) -> Sequence[str]:
    """The names that an argument may have; none if it may be any text."""
    return action.type.names if isinstance(action.type, OneOf) else ()


def takes_value(action: argparse.Action) -> bool:
    """Whether an option is followed by a value."""
    return action.nargs != 0


def described(action: argparse.Action) -> str:
    """The help of an argument, without the parts that argparse fills in."""
    return (action.help or "").replace("%(default)s", str(action.default))


def quoted(text: str) -> str:
    """A text in single quotes, for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


# ---- bash
def bash(parser: Parser) -> str:
    """The script for bash."""
    cases = "\n".join(_bash_case(name, sub) for name, sub in parser.subcommands.items())
    valued = {n for sub in parser.subcommands.values() for n, a in sub.options.items()
              if takes_value(a)}
    return f"""# bash completion of toile: eval "$(toile completion bash)"
_toile() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="" at=0 i
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{COMP_WORDS[i]}}" in
            {"|".join(sorted(valued))}) ((i++)) ;;
            -*) ;;
            *) if [[ -z $command ]]; then command="${{COMP_WORDS[i]}}"; else ((at++)); fi ;;
        esac
    done
    local words="" files=""
    case "$command" in
        "") words={quoted(" ".join([*parser.subcommands, *parser.options]))} ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    if [[ -n $files && $word != -* ]]; then
        COMPREPLY+=($(compgen -f -- "$word"))
        compopt -o filenames 2>/dev/null
    fi
}}
complete -F _toile toile"""


def _bash_case(name: str, parser: Parser) -> str:
    """The branch for a subcommand: values of options, then options and positional arguments."""
    inside = []
    for option, action in parser.options.items():
        if takes_value(action):
            inside.append(f"            {option}) words={quoted(' '.join(names_of(action)))} ;;")
    places = []
    for i, action in enumerate(parser.positionals):
        words = names_of(action)
        chosen = f'words="$words {" ".join(words)}"' if words else "files=1"
        places.append(f"                {i}) {chosen} ;;")
    arguments = ""
    if places:
        arguments = ('\n            case "$at" in\n' + "\n".join(places) + "\n            esac")
    values = "".join(f"{line}\n" for line in inside)
    return f"""        {name}) case "$previous" in
{values}            *) words={quoted(" ".join(parser.options))}{arguments} ;;
            esac ;;"""


# ---- zsh
def zsh(parser: Parser) -> str:
    """The script for zsh."""
    commands = "\n".join(f"        {_zsh_pair(a.dest, a.help)}" for a in _choices(parser))
    cases = "\n".join(_zsh_case(name, sub) for name, sub in parser.subcommands.items())
    options = " ".join(_zsh_option(n, a) for n, a in parser.options.items())
    return f"""#compdef toile
# zsh completion of toile: source <(toile completion zsh)
_toile() {{
    local context state state_descr line
    typeset -A opt_args
    local -a commands
    commands=(
{commands}
    )
    _arguments -C {options} '1: :->command' '*:: :->arguments'
    case $state in
        command) _describe 'command' commands ;;
        arguments) case $words[1] in
{cases}
        esac ;;
    esac
}}
if [[ $funcstack[1] == _toile ]]; then _toile "$@"; else compdef _toile toile; fi"""


def _choices(parser: Parser) -> list[argparse.Action]:
    """The subcommands with their lines of help."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action._choices_actions)
    return []


def _zsh_pair(name: str, text: str | None) -> str:
    return quoted(f"{name}:{(text or '').replace(':', chr(92) + ':')}")


def _zsh_text(action: argparse.Action) -> str:
    """A description inside brackets, with brackets and colons escaped."""
    found = described(action)
    for sign in "\\[]:":
        found = found.replace(sign, f"\\{sign}")
    return found


def _zsh_values(action: argparse.Action) -> str:
    words = names_of(action)
    otherwise = " " if action.option_strings else "_files"
    title = str(action.metavar or action.dest).partition(":")[0]
    return f":{title}:" + (f"({' '.join(words)})" if words else otherwise)


def _zsh_option(name: str, action: argparse.Action) -> str:
    value = _zsh_values(action) if takes_value(action) else ""
    return quoted(f"{name}[{_zsh_text(action)}]{value}")


def _zsh_case(name: str, parser: Parser) -> str:
    options = [_zsh_option(n, a) for n, a in parser.options.items()]
    places = [quoted(f"{i}{_zsh_values(a)}") for i, a in enumerate(parser.positionals, 1)]
    return f"            {name}) _arguments {' '.join([*options, *places])} ;;"


# ---- fish
def fish(parser: Parser) -> str:
    """The script for fish."""
    lines = ["# fish completion of toile: toile completion fish | source", "complete -c toile -f"]
    for action in _choices(parser):
        lines.append(f"complete -c toile -n __fish_use_subcommand -a {action.dest} "
                     f"-d {_fish_quoted(action.help or '')}")
    for name, action in parser.options.items():
        lines.append(f"complete -c toile -n __fish_use_subcommand {_fish_option(name, action)}")
    for name, sub in parser.subcommands.items():
        seen = f"complete -c toile -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{seen} {_fish_option(n, a)}" for n, a in sub.options.items()]
        for action in sub.positionals:
            words = names_of(action)
            lines.append(f"{seen} -a '{' '.join(words)}'" if words else f"{seen} -F")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_option(name: str, action: argparse.Action) -> str:
    flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
    words = names_of(action)
    value = f" -x -a '{' '.join(words)}'" if words else " -x" if takes_value(action) else ""
    return f"{flag}{value} -d {_fish_quoted(described(action))}"
