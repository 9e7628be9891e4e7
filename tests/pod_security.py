#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whether a pod is one that Kubernetes' Pod Security Standard "restricted" accepts, by the rules that are published at
kubernetes.io/docs/concepts/security/pod-security-standards; and that a file for the Container Device Interface is one.

usage: pod_security.py pod FILE | pod_security.py cdi FILE | pod_security.py test POD
"""

import copy
import json
import re
import sys

import yaml

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
           "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
           "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
           "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
SELINUX = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}


def handlers(container):
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield container.get(probe) or {}
    for when in ("postStart", "preStop"):
        yield (container.get("lifecycle") or {}).get(when) or {}


def contexts(name, context):
    """What is wrong with the security context of a pod or a container."""
    if (context.get("windowsOptions") or {}).get("hostProcess"):
        yield f"{name}: hostProcess"
    selinux = context.get("seLinuxOptions") or {}
    if selinux.get("type") not in SELINUX or selinux.get("user") or selinux.get("role"):
        yield f"{name}: seLinuxOptions"
    if (context.get("appArmorProfile") or {}).get("type") not in (None, "RuntimeDefault", "Localhost"):
        yield f"{name}: appArmorProfile"
    if (context.get("seccompProfile") or {}).get("type") not in (None, "RuntimeDefault", "Localhost"):
        yield f"{name}: seccompProfile"
    if context.get("runAsUser") == 0:
        yield f"{name}: runAsUser 0"
    if context.get("runAsNonRoot") is False:
        yield f"{name}: runAsNonRoot false"


def containers(pod, spec):
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or ():
            name, context = container["name"], container.get("securityContext") or {}
            yield from contexts(name, context)
            if context.get("privileged"):
                yield f"{name}: privileged"
            if context.get("allowPrivilegeEscalation") is not False:
                yield f"{name}: allowPrivilegeEscalation is not false"
            capabilities = context.get("capabilities") or {}
            if "ALL" not in (capabilities.get("drop") or ()):
                yield f"{name}: capabilities are not dropped"
            if set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
                yield f"{name}: capabilities are added"
            if context.get("procMount") not in (None, "Default"):
                yield f"{name}: procMount"
            if any(port.get("hostPort") for port in container.get("ports") or ()):
                yield f"{name}: hostPort"
            if any((h.get(action) or {}).get("host") for h in handlers(container) for action in ("httpGet", "tcpSocket")):
                yield f"{name}: a probe of another host"
            for needed in ("runAsNonRoot", "seccompProfile"):
                if not (context.get(needed) or pod.get(needed)):
                    yield f"{name}: {needed} is missing"


def violations(document):
    spec = document["spec"]
    pod = spec.get("securityContext") or {}
    found = [f"{host} is set" for host in ("hostNetwork", "hostPID", "hostIPC") if spec.get(host)]
    found += contexts("the pod", pod)
    # before there were fields for it
    for key, profile in (document["metadata"].get("annotations") or {}).items():
        if key.startswith(APPARMOR) and profile not in ("", "runtime/default") and not profile.startswith("localhost/"):
            found.append(f"annotation {key}: {profile}")
    found += [f"sysctl {s['name']}" for s in pod.get("sysctls") or () if s["name"] not in SYSCTLS]
    for volume in spec.get("volumes") or ():
        found += [f"volume {volume['name']}: {kind}" for kind in volume.keys() - {"name"} - VOLUMES]
    return found + list(containers(pod, spec))


def cdi(document):
    """What is wrong with a file for /etc/cdi, by the specification of its version 0.3.0."""
    found = [f"unknown {key}" for key in document.keys() - {"cdiVersion", "kind", "devices", "containerEdits"}]
    if document["cdiVersion"] != "0.3.0":
        found.append("cdiVersion")
    if not re.fullmatch(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w-]*[A-Za-z0-9])?", document["kind"]):
        found.append("kind")
    if not document["devices"]:
        found.append("no devices")
    for device in document["devices"]:
        found += [f"unknown {key}" for key in device.keys() - {"name", "containerEdits"}]
        if not re.fullmatch(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", device["name"]):
            found.append("name of a device")
        for edit, what in device["containerEdits"].items():
            if edit != "mounts":
                found.append(f"unknown {edit}")
                continue
            for mount in what:
                found += [f"unknown {key}" for key in mount.keys() - {"hostPath", "containerPath", "options"}]
                if not mount["hostPath"].startswith("/") or not mount["containerPath"].startswith("/"):
                    found.append("a path that is not absolute")
    return found


def broken(good):
    """Each rule, broken once: what it is, and the pod."""
    def pod(path, value):
        bad = copy.deepcopy(good)
        where = bad["spec"]
        for step in path[:-1]:
            where = where[step] if isinstance(step, int) else where.setdefault(step, {})
        if value is None:
            del where[path[-1]]
        else:
            where[path[-1]] = value
        return bad

    for profile in ("unconfined", "runtime/other"):
        bad = copy.deepcopy(good)
        bad["metadata"].setdefault("annotations", {})[f"{APPARMOR}program"] = profile
        yield f"annotation {profile}", bad
    first, security = ("containers", 0), "securityContext"
    own = (*first, security)
    for host in ("hostNetwork", "hostPID", "hostIPC"):
        yield host, pod((host,), True)
    for path in ((security,), own):
        yield "windows", pod((*path, "windowsOptions"), {"hostProcess": True})
        yield "seLinux", pod((*path, "seLinuxOptions"), {"type": "spc_t"})
        yield "appArmor", pod((*path, "appArmorProfile"), {"type": "Unconfined"})
        yield "seccomp", pod((*path, "seccompProfile"), {"type": "Unconfined"})
        yield "user", pod((*path, "runAsUser"), 0)
        yield "root", pod((*path, "runAsNonRoot"), False)
    yield "no seccomp", pod((security, "seccompProfile"), None)
    yield "no runAsNonRoot", pod((security, "runAsNonRoot"), None)
    yield "sysctl", pod((security, "sysctls"), [{"name": "kernel.shmmax", "value": "1"}])
    yield "privileged", pod((*own, "privileged"), True)
    yield "escalation", pod((*own, "allowPrivilegeEscalation"), None)
    yield "no drop", pod((*own, "capabilities"), {})
    yield "add", pod((*own, "capabilities"), {"drop": ["ALL"], "add": ["SYS_PTRACE"]})
    yield "procMount", pod((*own, "procMount"), "Unmasked")
    yield "port", pod((*first, "ports"), [{"containerPort": 1, "hostPort": 1}])
    yield "probe", pod((*first, "livenessProbe"), {"httpGet": {"host": "10.0.0.1", "port": 1}})
    yield "hook", pod((*first, "lifecycle"), {"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 1}}})
    yield "volume", pod(("volumes",), [{"name": "v", "hostPath": {"path": "/run/share"}}])
    yield "init", pod(("initContainers",), [{"name": "i", "image": "i"}])


def main():
    what, path = sys.argv[1:]
    with open(path, encoding="utf-8") as f:
        documents = [json.load(f)] if what == "cdi" else [d for d in yaml.safe_load_all(f) if d["kind"] == "Pod"]
    if not documents:
        sys.exit(f"{path}: there is no pod in it")
    for document in documents:
        found = cdi(document) if what == "cdi" else violations(document)
        if found:
            sys.exit(f"{path}: {'; '.join(found)}")
        if what == "test":
            for rule, bad in broken(document):
                if not violations(bad):
                    sys.exit(f"{rule}: a pod that breaks this is accepted")


if __name__ == "__main__":
    main()
