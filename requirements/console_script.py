"""Writes ``bin/perfgate`` of an environment: the command line of the checkout for which the environment was made.

It uses only the standard library, and must parse on Python 3.6, like bootstrap.py.
"""

import os
import shlex

NAME = "perfgate"
# /bin/sh finds the interpreter: a first line that names it would be cut off at 127 characters, could not contain a
# space, and would be wrong after the folder is moved. Python gets the checkout in place of the current folder, whose
# files could hide modules of the same name.
TEMPLATE = """\
#!/bin/sh
# Written by requirements/bootstrap.py.
bin=$(dirname -- "$(readlink -f -- "$0")")
checkout={checkout}
if [ ! -f "$checkout/helpers/commands/main.py" ]; then
    echo "perfgate: error: its checkout is not at $checkout any more; call 'make env' where it is now" >&2
    exit 4
fi
exec "$bin/python" -c '
import sys
sys.path[:] = [sys.argv.pop(1)] + [folder for folder in sys.path if folder]
from helpers.commands.__main__ import main
sys.exit(main(sys.argv[1:]))
' "$checkout" "$@"
"""


def script(venv: str, checkout: str) -> str:
    """The script's text. An environment inside its checkout finds it from there, so that both can move."""
    venv, checkout = os.path.realpath(venv), os.path.realpath(checkout)
    if os.path.commonpath([venv, checkout]) == checkout:
        steps = os.path.relpath(checkout, os.path.join(venv, "bin"))
        return TEMPLATE.format(checkout='$(readlink -f -- "$bin/{}")'.format(steps))
    return TEMPLATE.format(checkout=shlex.quote(checkout))


def provide(venv: str, checkout: str) -> bool:
    """Write the script, whole or not at all, unless it is already right. Returns whether it was written."""
    path, wanted = os.path.join(venv, "bin", NAME), script(venv, checkout).encode()
    try:
        with open(path, "rb") as file:
            if file.read() == wanted and os.access(path, os.X_OK):
                return False
    except FileNotFoundError:
        pass
    if os.path.lexists(path + ".new"):
        os.remove(path + ".new")
    with os.fdopen(os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777), "wb") as file:
        file.write(wanted)
    os.replace(path + ".new", path)
    return True
