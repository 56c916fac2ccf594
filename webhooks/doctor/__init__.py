"""What stands in the way of an installation: evidence gathered from a cluster, and the checks on it."""

from webhooks.doctor.checks import diagnose
from webhooks.doctor.evidence import Evidence, gather
from webhooks.doctor.finding import FAILURE, LEVELS, OK, WARNING, Finding

__all__ = ["FAILURE", "LEVELS", "OK", "WARNING", "Evidence", "Finding", "diagnose", "gather"]
