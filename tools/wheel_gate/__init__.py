"""What a wheel must be before anybody gets it: ``python tools/wheel_gate WHEEL...``.

One reader per format of libraries (``elf``, ``pe``, ``macho``), all giving a ``Library``; the rules about it are in
``rules`` and ``instructions``, those about the archive around it in ``archive``.
"""
