"""Peak memory and FLOPs of a training step, predicted without the accelerator.

One rule a file: ``fakes`` builds the task without storage, ``ledger`` writes
down storages as the device would have them, ``attention`` takes the kernel that
the device would take, ``target`` holds the facts about the device, ``predict``
runs it all. The log of storages, the account of them and the simulated allocator
are those of real runs: ``storages``, ``account`` and ``allocator`` one room up.
"""
