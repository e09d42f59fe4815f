"""The plain frozen records that travel between the rooms.

They hold what was measured and what was concluded, never how; every record
can be written as JSON and read back unchanged (``to_json`` / ``from_json``).
Times are milliseconds, memory is MiB (written ``mb``, as in the source
documents), and a value that was not measured is ``None`` or absent, never 0.
"""
