"""The supervisor: one process per run, which starts the nodes, keeps their logs and writes how they ended.

It is no child of the server. It uses the standard library only, and few modules of it: what is imported here is part of
every job's time to its first line. The server hands over a complete plan and the run's lock; this program only carries
the plan out.

Nothing may outlive a supervisor that is killed at any moment. `bwrap --die-with-parent` alone is too late in its first
milliseconds, so the payload says `ready` and waits for `go` on a pipe whose other end only the supervisor holds: end of
file means exit. `began` is on the disk before the first `go`; with it, a run is never started again.
"""
