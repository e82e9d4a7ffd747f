"""Kubernetes Events, as `kubectl describe` shows them."""

from __future__ import annotations

import msgspec

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.untrusted import Moment


class ObjectReference(Slim, frozen=True, kw_only=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""


class EventSource(Slim, frozen=True, kw_only=True):
    """The component that reported the event."""

    component: str = ""
    host: str = ""


class Occurrence(Slim, frozen=True, kw_only=True):
    """A core/v1 Event. It is created once and never changed. The API server deletes it after about an hour."""

    metadata: ObjectMeta
    involved_object: ObjectReference
    type: str
    """`Normal` or `Warning`. Always sent: the API server has no default for it."""
    reason: str = ""
    """One word in CamelCase: what happened."""
    message: str = ""
    first_timestamp: Moment | None = None
    last_timestamp: Moment | None = None
    count: int = 1
    source: EventSource = EventSource()
    reporting_controller: str = msgspec.field(default="", name="reportingComponent")
    reporting_instance: str = ""
