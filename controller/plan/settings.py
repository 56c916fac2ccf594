"""What is published: the names that count as GPUs."""

from collections.abc import Iterator

from cluster import kinds
from controller.state import State
from controller.writes import Write
from gpu import names
from gpu.gpuclass import OF_DEVICE_CLASSES


def given(state: State) -> frozenset[str]:
    """The resource names of all classes, those they sold before too, those that the values add, and for every guarded
    DeviceClass its own and the extended resource that it backs."""
    of_classes = {name for gpu_class in state.classes.values() for name in gpu_class.resource_names}
    guarded = state.config.device_class_names
    of_guarded = {f"{OF_DEVICE_CLASSES}{name}" for name in guarded}
    backed = {
        found.extended for name in guarded if (found := state.device_classes.get(name)) is not None and found.extended
    }
    return frozenset(of_classes | state.config.resource_names | of_guarded | backed)


def known(state: State) -> frozenset[str]:
    """A name stays when its class goes: what was ever published and is not forgotten, with what is given now.

    The Lease says what was; where it does not, what is published does.
    """
    before = state.remembered.known if state.remembered else None
    if before is None:
        before = state.published.listed if state.published else frozenset()
    return before | given(state)


def settings_writes(state: State) -> Iterator[Write]:
    """The names are kept on the Lease, and the ConfigMap is made whole whenever it is lost or edited.

    The Lease comes first: a name that was published and is remembered nowhere would be free again as soon as its class
    sells another.
    """
    names_known = ",".join(sorted(known(state)))
    lease = state.remembered
    if lease is not None and (lease.known is None or ",".join(sorted(lease.known)) != names_known):
        yield Write(
            kind=kinds.LEASES,
            verb="merge",
            namespace=state.config.namespace,
            name=lease.name,
            body={"metadata": {"annotations": {names.RESOURCE_NAMES: names_known}}},
            version=lease.version,
            why="the names that are to be published are remembered",
        )
        return
    yield from _published(state, names_known)


def _published(state: State, names_known: str) -> Iterator[Write]:
    guarded = ",".join(sorted(state.config.device_class_names))
    data = {"resourceNames": names_known, "deviceClassNames": guarded}
    found, namespace = state.published, state.config.namespace
    if found is None:
        metadata = {"namespace": namespace, "name": names.SETTINGS}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        why = "the settings are published"
        yield Write(
            kind=kinds.CONFIG_MAPS, verb="create", namespace=namespace, name=names.SETTINGS, body=manifest, why=why
        )
    elif (found.resource_names, found.device_class_names) != (names_known, guarded) and not found.deleting:
        yield Write(
            kind=kinds.CONFIG_MAPS,
            verb="delete" if found.immutable else "merge",
            namespace=namespace,
            name=names.SETTINGS,
            body={} if found.immutable else {"data": data},
            version=found.version,
            why="the settings are made right; they were changed by hand, or the names have changed",
        )
