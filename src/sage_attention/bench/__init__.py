"""``sage-attention bench``: how fast this machine attends, beside what it costs it to read the rows at all.

Facts of the machine (`machine`), a problem (`graphs`, `problem`, `samplers`), contenders timed in turn (`timing`), what
is measured in which order (`measure`), and the result for people and programs (`result`, `show`, `page`). `contenders`,
`peers` and pyg-lib's sampler alone need torch. The scripts under ``benchmarks/`` stand on the same parts.
"""
