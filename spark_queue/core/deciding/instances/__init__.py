"""Decisions about messages that several instances share (DESIGN 17).

`replicating` takes over what peers say, `transfers` asks owners and gives away, `requests` answers them, `claims` claims,
`naming` knows further names of a message, `lives` tells one life from another, and `liveness` which instance was heard of.
"""
