"""The storage engine under simulated disks, threads and time, against a plain model; one seed decides everything.

A seed is a few lives of one node's storage: topics come and go, logs are written, truncated, retained, compacted and
read, calls that block overlap with the event loop, and each life ends in a stop, a kill or a power cut. After every
step what readers see is compared with the model, and after every start what the disk has kept.

    ottla simulate storage --seeds 5000 [--first 0]       many seeds
    ottla simulate storage --seed 42                      one seed, its trace and the hash of the trace
"""
