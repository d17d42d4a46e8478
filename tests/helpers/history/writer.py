"""A process that writes runs and their nights into a history, telling each uuid once it is kept.

``python -m tests.helpers.history.writer URL NAME COUNT``
"""

from __future__ import annotations

import sys

from helpers.history import open_history
from tests.helpers.history.made import moment, night, run


def main() -> None:
    url, name, count = sys.argv[1:]
    with open_history(url) as history:
        for number in range(int(count)):
            uuid, session = f"{name}-{number}", f"{name}-s{number}"
            history.add_result(run(uuid, session=session, created=moment(number), system={"CPU": {"name": name}}))
            history.add_night(night(number, session=session, run_uuids=(uuid,)))
            print(uuid, flush=True)


if __name__ == "__main__":
    main()
