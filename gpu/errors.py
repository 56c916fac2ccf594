"""The one exception tree of the domain."""


class GPUError(Exception):
    """Whatever the domain raises; its text is a sentence for a person."""


class FieldError(GPUError):
    """A field that can't be read as what it has to be.

    ``path`` is the field's path, ``problem`` what is wrong with it, ``reason`` a cause type of the Kubernetes API
    (``FieldValueInvalid`` and its kin, k8s.io/apimachinery/pkg/apis/meta/v1, CauseType).
    """

    def __init__(self, path: str, problem: str, *, reason: str = "FieldValueInvalid") -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem
        self.reason = reason


class CatalogError(GPUError):
    """A fresh read or a write that failed, so that nothing can be decided now; worth a retry."""


class NameTaken(CatalogError):
    """A device of that name exists already."""


class Changed(CatalogError):
    """The object was changed or deleted since it was read."""


class BuildRefused(CatalogError):
    """The API refused to create a device, for a quota for instance; ``code`` and ``reason`` are its Status's."""

    def __init__(self, message: str, *, code: int = 403, reason: str = "Forbidden") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
