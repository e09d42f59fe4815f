"""Pictures of a study, one a file: each has a function from plain records to a figure.

A function gives None where there is nothing to show. ``style.png`` makes the file. They
import matplotlib, which takes half a second: import them only to draw.
"""
