"""Document 003's documents, letter for letter."""

from __future__ import annotations

FIRST_TEST = """\
---
apiVersion: v1
kind: Workload
metadata:
  name: first-test
spec:
  driver: pwm.docker
  selectors:
    gpu:
      product_name: Quadro RTX 6000
      count: 1
  image: 
    image: tensorflow/tensorflow
"""

CPU_TEST = """\
---
apiVersion: v1
kind: Workload
metadata:
  name: test-ubuntu-01
spec:
  driver: pwm.docker
  selectors:
    cpu:
      product_name: pwm.all
  image: 
    image: ubuntu
  config: 
    cmd: /bin/bash
    startMode: -itd
"""

DATASET = """\
---
apiVersion: v1
kind: Volume
metadata:
  name: datasets-hmdb-uci
  group: pwm.resource
spec:
  storage: pwmzfs01
  subPath: datasets/hmdb_ucf
  policy: readonly
"""

TENSORFLOW = """\
---
apiVersion: v1
kind: Workload
metadata:
  name: tensorflow-2
spec:
  driver: pwm.docker
  selectors:
    node:
      name: emcprom09
    cpu:
      product_name: pwm.all
  image: 
    image: ubuntu
  config: 
    cmd: /bin/bash
  volumes:
    - name: home # This is a user home
      storage: pwmzfs01 
      target: /home
    - group: pwm.resource # This is a dataset
      name: datasets-hmdb-uci
      target: /usr/datasets
"""

USER_FILE = """\
---
apiVersion: v1
kind: Group
metadata:
  name: yourUserName

---
apiVersion: v1
kind: User
metadata:
  name: yourUserName
spec:
  groups:
    - name: yourUserName
      policy:
        Workload: 
          - get
          - getOne
          - apply
          - delete
          - describe
          - shell
          - cancel
        Volume:
          - get
    - name: pwm.resource
      policy:
        Storage:
          - get
        CPU:
          - get
        GPU:
          - get
"""

DOCUMENTS = (FIRST_TEST, CPU_TEST, DATASET, TENSORFLOW, USER_FILE)
