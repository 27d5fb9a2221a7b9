"""Real Docker hosts on one machine, for tests: engines, registries, and ssh servers to reach the engines through.

`python -m tests.hosts up` starts some, `down` ends them; several lots run side by side under names of their own.

A lot lives in the namespaces of a rig's holder (see `tests/rig`), with the bridge and the registries. Each host in it
has a set of its own (processes, mounts, network, name), whose first process starts the engine and the ssh server: to
kill that process is to pull the host's plug. Nothing but the cable to this machine is seen outside.

    programs    what must be installed
    boot        the first process of a host
    files       what is on a host's disk when it is turned on for the first time
    gpus        GPUs that are not there
    host        one host: its engine, its ssh server, and what can befall it
    keys        who may reach the engines, by TLS and by ssh
    names       the name server of all
    registry    an open registry, and one that wants a login
    archives    images, as `docker load` takes them
    stock       images that an engine need not load again
    lot         `Hosts`: all of it together
    fixtures    `hosts`, `gpu_hosts`, `own_hosts` and `registry` of the tests
"""
