"""The report of a study that stands alone: one HTML file, or Markdown for a pull request.

``content`` gathers what is said, in English or Chinese, out of plain records; ``page`` and
``pull_request`` only render it.
"""
