"""Decisions about messages that several instances share (DESIGN 17).

`replicating` takes over what peers say, `naming` knows messages by further names, `transfers` asks owners, gives away and claims,
`requests` answers what others ask, `lives` gives each record one life, and `reach` knows who was heard of.
"""
