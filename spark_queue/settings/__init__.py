"""Settings of users, in one registry: Spark options here, the keys of definition files in `core.definitions.definition`.

Validation, did-you-mean errors, ``sparkq options`` and the reference's tables all come from it.
"""
