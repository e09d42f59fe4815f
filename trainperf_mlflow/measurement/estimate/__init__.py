"""Peak memory and FLOPs of a training step, predicted without the accelerator.

One rule a file: ``fakes`` builds the task without storage, ``ledger`` writes
down storages as they are made and freed, ``account`` plays them through
``allocator``, which gives them the blocks that the device's would,
``attention`` takes the kernel that the device would take, ``target`` holds the
facts about the device, ``predict`` runs it all.
"""
