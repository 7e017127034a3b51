"""Shell completion: `source <(shoal --completion bash)`, or zsh, or fish."""

from __future__ import annotations

from ..errors import ShoalError, did_you_mean

BASH = """\
_shoal() {
    local word="${COMP_WORDS[COMP_CWORD]}"
    case "$word" in
        -*) COMPREPLY=($(compgen -W "%(options)s" -- "$word")) ;;
        *)
            if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "%(verbs)s" -- "$word"))
            else COMPREPLY=($(compgen -W "%(names)s" -- "$word") $(compgen -f -- "$word")); fi ;;
    esac
}
complete -o filenames -o nosort -F _shoal shoal
"""
ZSH = "autoload -Uz compinit bashcompinit\ncompinit\nbashcompinit\n" + BASH.replace(
    " -o nosort", ""
)
FISH = """\
complete -c shoal -n __fish_use_subcommand -f -a "%(verbs)s"
complete -c shoal -n "not __fish_use_subcommand" -a "%(names)s"
"""


def script(shell: str) -> str:
    """The completion script for a shell, with the options of runs and of all algorithms."""
    shells = {"bash": BASH, "zsh": ZSH, "fish": FISH}
    if shell not in shells:
        raise ShoalError(
            f"say for which shell: shell is {', '.join(shells)}, not"
            f" {shell!r}{did_you_mean(shell, shells)}"
        )
    from .. import plugins
    from ..algorithms import ALGORITHMS, ALIASES
    from ..config import published
    from ..config.flags import SHORT, flags
    from ..config.settings import Settings
    from ..config.trust import FLAG
    from ..envs import GAMES
    from .main import COMMANDS

    everything = [Settings, *(kind.Config for kind in ALGORITHMS.values())]
    options = sorted(
        {flag for kind in everything for flag, _ in flags(kind, kind())}
        | {FLAG, *SHORT, "--team", "--help"}
    )
    plugged = [name for kind in ("algorithm", "game") for name in plugins.entries(kind)]
    names = [*ALGORITHMS, *ALIASES, *GAMES, *plugged, *published.names()]
    words = {"verbs": " ".join(COMMANDS), "names": " ".join(names), "options": " ".join(options)}
    alone = (
        "".join(f"complete -c shoal -l {option[2:]}\n" for option in options)
        if shell == "fish"
        else ""
    )
    return shells[shell] % words + alone
