"""What is decided of messages that several instances have (DESIGN 17).

`replicating` takes over what peers say, `transfers` asks owners, answers them, gives away and claims, and
`liveness` knows which instance was heard of.
"""
