"""``sage-attention inspect``: what an extension module, a shared library or a wheel needs, and whether Python finds it.

``pe``, ``elf`` and ``macho`` read one file each into a ``model.Binary``; ``archive`` and ``subject`` say which files
there are; ``target`` describes where they shall run; the ``*_loader`` modules say where each library is found or why
not; ``judge`` draws the conclusions, ``text`` and ``document`` print them.
"""
