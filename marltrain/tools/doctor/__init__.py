"""The state of an installation: its packages, devices, folders, and whether a training works.

The modules of this folder import no package that may be broken: other processes import these (`processes.py`).
"""
