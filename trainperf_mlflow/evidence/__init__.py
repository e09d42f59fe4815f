"""What decisions stand on and are handed on in: published formats, hashes, identities.

Pure functions and files; neither torch nor MLflow.
"""
