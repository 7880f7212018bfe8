"""``python -m bench``, by ``script/bench``: run the sections, print tables, write JSON and chart below var/bench."""

import shlex
import signal
import sys

from bench import facts, report
from bench.arguments import arguments_parse
from bench.isolation import SectionFailed, section_measure
from bench.progress import reporter as reporter_make


def main(arguments: list[str]) -> int:
    """Exit code: 0 when everything ran or was left out with a reason, 1 when a section failed, 2 for bad arguments."""
    options, sections = arguments_parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    figures: dict[str, dict] = {}
    failed: dict[str, str] = {}
    meta = facts.meta(options, command=shlex.join(["script/bench", *arguments]))
    try:
        with reporter_make() as reporter:
            for name in sections:
                reporter.begin(name)
                try:
                    if measured := section_measure(name, options, reporter):
                        figures[name] = measured
                    reporter.end()
                except SectionFailed as fault:
                    failed[name] = str(fault)
    except KeyboardInterrupt:
        print("interrupted: nothing was written")
        return 130
    result = {**figures, "meta": {**meta, "left_out": reporter.left_out, "failed": failed}}
    report.result_print(result)
    if figures:
        print("\n" + ", ".join(str(path) for path in report.result_write(result)))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
