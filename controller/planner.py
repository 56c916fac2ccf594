"""Plans of what the keeper knows, each with what the ones before it saw."""

from datetime import datetime

from controller.keeper import Tables
from controller.plan import plan
from controller.seen import Seen
from controller.state import Config, State
from controller.writes import Plan


class Planner:
    """Makes plans one after the other."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._seen = Seen()

    def plan(self, tables: Tables, *, now: datetime) -> Plan:
        """What is to be written, by what is known now and what was seen until now."""
        state = State.of(tables.values, config=self._config, now=now, served=tables.served, seen=self._seen)
        self._seen = state.seen
        return plan(state)

    def forget(self) -> None:
        """Another led meanwhile: what was seen before counts for nothing."""
        self._seen = Seen()
