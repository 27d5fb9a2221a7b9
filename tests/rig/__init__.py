"""A real Kubernetes on one machine, for tests: etcd, the control plane, and nodes with kubelet and containerd.

`python -m tests.rig up` starts one, `down` ends it; several run side by side under names of their own.

All of a rig lives in one set of namespaces (processes, mounts, network) whose first process is the *holder*
(`holder.py`). When that process ends, however it ends, the kernel ends every other process of the rig and takes its
mounts, network namespaces and links with it. What the kernel does not take, a directory and empty cgroups, has
names derived from the rig's, and is removed by the next `down` or `up` of that name.

    places         the name, the slot, and every path and address derived from them
    holder         the first process of a rig: starts, ends and reaps the others
    processes      how everyone else speaks to it
    build          the programs: Kubernetes, CoreDNS and the storage provisioner, built once per machine
    versions       those of another version of Kubernetes
    images         container images, written and read
    system         those every rig has, made of what this machine has installed
    registry       where the nodes pull them from
    certificates   who is who, for TLS
    network        the bridge, and a network namespace for each node
    cgroups        where the nodes keep those of their pods
    control        etcd, the API server, the controllers, the scheduler, DNS
    api            the API server, asked without kubectl
    node           containerd, kubelet and kube-proxy of one node
    storage        the storage classes
    provisioner    what makes, enlarges and removes the volumes of claims
    kueue          Kueue, which decides when Jobs in a queue may start
    cluster        `Rig`: all of it together, and what tests do with it
    left           what is still there of one that has ended
    fixtures       the `rig` fixture of the tests
"""
