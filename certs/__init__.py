"""Serving certificates: an authority, its leaves, their renewal, and TLS contexts that swap them while serving."""

from certs.authority import CLOCK_SKEW, Authority, Pair
from certs.clients import ClientAuthorities
from certs.context import ServingContext, server_context
from certs.errors import CertificateError, ForeignSecret
from certs.figures import CertificateMetrics, Figures
from certs.files import FileCertificates
from certs.incluster import ClusterCertificates, service_names
from certs.renewal import Validity, due_at, leaf_renewal, renewal
from certs.selfsigned import SelfSigned
from gpu.clock import Clock, utc_now

__all__ = [
    "CLOCK_SKEW",
    "Authority",
    "CertificateError",
    "CertificateMetrics",
    "ClientAuthorities",
    "Clock",
    "ClusterCertificates",
    "Figures",
    "FileCertificates",
    "ForeignSecret",
    "Pair",
    "SelfSigned",
    "ServingContext",
    "Validity",
    "due_at",
    "leaf_renewal",
    "renewal",
    "server_context",
    "service_names",
    "utc_now",
]
