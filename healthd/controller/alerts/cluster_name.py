"""The name of the cluster in alerts: from the configuration, or what tells one cluster from all others."""

from __future__ import annotations

import structlog

from healthd.clock import Clock
from healthd.cluster.loop import RETRY
from healthd.cluster.port import Cluster, ClusterError, Forbidden, NotFound, Unusable
from healthd.core.api import KUBE_SYSTEM, Namespace
from healthd.core.config import AlertsPolicy

log = structlog.get_logger()


async def cluster_name(cluster: Cluster, clock: Clock, policy: AlertsPolicy) -> str:
    """
    `alerts.cluster`, or the uid of the namespace `kube-system`. Empty where that may not be read. Waits until the
    cluster answers: a name that changed with each outage would be no identity. Raises Unusable.
    """
    while not policy.cluster:
        try:
            return (await cluster.get(Namespace, KUBE_SYSTEM)).metadata.uid
        except (NotFound, Forbidden) as error:
            log.warning(
                "alerts.cluster_unknown", error=str(error), note="set alerts.cluster, or apply deploy/rbac.yaml"
            )
            return ""
        except Unusable:
            raise
        except ClusterError as error:
            log.warning("alerts.cluster_not_read", error=str(error))
            await clock.sleep(RETRY)
    return policy.cluster
