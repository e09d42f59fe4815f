"""Peak memory and FLOPs of a training step, predicted without the accelerator.

One rule a file: ``fakes`` builds the task without storage, ``ledger`` counts
storages as they are made and freed, ``allocator`` gives them the blocks that
the device's allocator would, ``attention`` takes the kernel that the device
would take, ``target`` holds the facts about the device, ``predict`` runs it.
"""
