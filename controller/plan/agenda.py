"""When something is due though nothing changes."""

from datetime import datetime, timedelta


class Agenda:
    """What is due when; ``next`` is the first time after now."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self.next: datetime | None = None

    def is_past(self, since: datetime | None, seconds: float) -> bool:
        """Whether so many seconds have passed since then, unknown times ago; if not, that time is noted."""
        if since is None:
            return True
        due = since + timedelta(seconds=seconds)
        if due <= self._now:
            return True
        if self.next is None or due < self.next:
            self.next = due
        return False
