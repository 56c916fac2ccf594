"""What the process that serves asks of the system and of Python."""

import gc
import resource

import structlog

_log = structlog.get_logger("gpu-webhooks")


def allow_open_files(needed: int) -> None:
    """Raise the process's limit of open files to what its connections need, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    allowed = needed if hard == unlimited else min(needed, hard)
    if soft != unlimited and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        _log.warning(
            "few open files", allowed=allowed, needed=needed, do="raise ulimit -Hn, or lower --most-connections"
        )


def collect_rarely() -> None:
    """Have the garbage collector look at what is there less often.

    A review is thousands of objects that are freed without it; by default it would look at them several times a call.
    """
    gc.set_threshold(50_000, 20, 50)


def settle() -> None:
    """Have the garbage collector pass over what is there now, for good."""
    gc.collect()
    gc.freeze()
