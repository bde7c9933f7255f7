"""Decisions about messages that several instances share (DESIGN 17).

`replicating` takes over what peers say, `transfers` asks owners, answers them, gives away and claims, and
`liveness` knows which instance was heard of.
"""
