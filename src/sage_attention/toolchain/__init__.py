"""The companion for those who must compile a Python extension: ``explain``, ``doctor``, ``inspect``.

It imports nothing of the rest of the package but ``errors``, and nothing imports it but ``cli``: it has to work where
NumPy, torch and the native library do not. Facts are gathered, then judged, then printed, in three places; what ages
(compiler tables, signatures, lists of DLLs) is JSON under ``data/`` with a source for each row.
"""
