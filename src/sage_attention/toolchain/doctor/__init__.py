"""``sage-attention doctor``: what this machine can build and run.

Three steps in three places: ``gather`` reads facts through ``System``, ``judge`` turns them into findings, ``show``
prints.
"""
