"""Spark's Python data source ``sparkqueue``: camelCase lives only here.

Four processes of Spark load this package. The *planner* (one for each running stream) speaks with the coordinator. The
*plan worker* makes a second reader only to ship it. *Executors* read message files and talk to nobody: their code
imports pyarrow and nothing else of third parties. The *sink worker* commits the files that executors staged.
"""
