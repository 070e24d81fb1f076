"""How a measuring program ends, also before its time: nothing that it started is left, and it says what its result files hold."""

import sys

from . import results, signals
from .errors import Interrupted
from .program import end_all


def orderly(program, body):
    """The exit status that body() returns; 128 and the signal's number when SIGTERM, SIGINT or SIGHUP ended it."""
    results.opened.clear()
    with signals.heard():
        try:
            try:
                return body()
            except (Exception, Interrupted) as error:
                signals.hear_no_more()
                results.stop_all(str(error) or repr(error))
                raise
            finally:
                signals.hear_no_more()
                end_all()
                for file in results.opened:
                    if not file.complete and file.path:
                        print(f"{program}: {file.held()}", file=sys.stderr, flush=True)
        except Interrupted as error:
            print(f"{program}: {error}", file=sys.stderr, flush=True)
            return error.status
