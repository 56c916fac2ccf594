"""The one exception tree of this package."""


class CertificateError(Exception):
    """A certificate, a key or a request for one is unusable; the message is a sentence that says why."""
