"""`ottla completion`: what a shell needs to complete commands, options, and the names of topics and groups.

Install it with one line in the shell's start file:

    eval "$(ottla completion bash)"          # ~/.bashrc
    eval "$(ottla completion zsh)"           # ~/.zshrc, after compinit
    ottla completion fish | source           # ~/.config/fish/config.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from ottla.cli import COMMANDS, available, parser_of
from ottla.cli.parsers import Argument, actions_of, arguments_of

_BASH = """_ottla() {
    local IFS=$'\\n'
    COMPREPLY=($(ottla completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -gt 0 ]] || compopt -o default
}
complete -F _ottla ottla
"""

_ZSH = """_ottla() {
    local -a found
    found=("${(@f)$(ottla completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[*]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _ottla ottla
"""

_FISH = """function __ottla_words
    set -l words (commandline -opc) (commandline -ct)
    ottla completion words -- $words[2..-1] 2>/dev/null
end
complete -c ottla -a '(__ottla_words)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
# Its words may be anything, even options: they must not be reordered.
HAS_ACTIONS = True

_ASK_SECONDS = 1.0
_TOPICS = ("topic", "topics")
_GROUPS = ("group", "groups")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=[*SCRIPTS, "words"], help="words: complete the words behind --")
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    if arguments.shell in SCRIPTS:
        print(SCRIPTS[arguments.shell], end="")
        return 0
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    *before, current = words or [""]
    for word in candidates(before, current):
        print(word)
    return 0


def candidates(before: Sequence[str], current: str) -> list[str]:
    """The words that may stand in place of `current`, after the words `before`."""
    return sorted(word for word in _all(before, current) if word.startswith(current))


def _all(before: Sequence[str], current: str) -> Iterable[str]:
    if not before:
        return available()
    if before[0] not in COMMANDS:
        return ()
    parser, behind = parser_of(before[0]), list(before[1:])
    if actions := actions_of(parser):
        if not behind:
            return actions
        if behind[0] not in actions:
            return ()
        parser = actions[behind[0]][1]
        behind = behind[1:]
    known = arguments_of(parser)
    options = {flag: argument for argument in known for flag in argument.flags}
    last = options.get(behind[-1]) if behind else None
    if last is not None and last.value is not None:
        return _values(last)
    if current.startswith("-"):
        return options
    places = [argument for argument in known if not argument.flags]
    taken = _places_taken(behind, options)
    if taken >= len(places):
        return _values(places[-1]) if places and places[-1].is_repeated else ()
    return _values(places[taken])


def _places_taken(words: Iterable[str], options: dict[str, Argument]) -> int:
    """How many of the words are positional, and not options or their values."""
    taken = 0
    is_value = False
    for word in words:
        option = options.get(word)
        if is_value:
            is_value = False
        elif option is not None:
            is_value = option.value is not None
        elif not word.startswith("-"):
            taken += 1
    return taken


def _values(argument: Argument) -> Iterable[str]:
    if argument.choices:
        return argument.choices
    if argument.name in _TOPICS:
        return _names("topic")
    if argument.name in _GROUPS:
        return _names("group")
    return ()


def _names(kind: str) -> list[str]:
    """The names that the broker of OTTLA_BOOTSTRAP knows; nothing if it does not answer at once."""
    from ottla.cli.connection import bootstrap_servers, security
    from ottla.client.client import Client
    from ottla.client.errors import ClientError
    from ottla.kproto.messages.groups.list_groups import ListGroupsRequest

    try:
        with Client(bootstrap_servers(None), _ASK_SECONDS, security=security(None)) as client:
            if kind == "topic":
                return [topic.name or "" for topic in client.metadata(None).topics if not topic.is_internal]
            return [group.group_id for group in client.call(ListGroupsRequest()).groups]
    except ClientError:
        return []
