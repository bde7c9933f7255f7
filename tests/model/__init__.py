"""Random programs against the core and a model of it that was written from the rules alone.

`model.py` is the model of a queue, in fewer than 300 lines: what is entered, chosen, held, settled, limited and let go. What stands
around a queue has a file of its own: `batches.py`, how Spark's batches end (proof, restart, failing batches taken apart), and
`journal.py`, what people do to a journal (definitions, retention, settling by hand). The rest draws programs and runs them on both.
"""
