"""Decisions about messages that several instances share (DESIGN 17).

`replicating` applies news of peers, `transfers` asks owners and gives away, `requests` answers them, `claims` claims,
`naming` knows further names of a message, `lives` parts messages by their life, and `liveness` knows the instances that live.
"""
