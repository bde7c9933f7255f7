"""Tables and topics to which each batch of a queue is appended in one commit, which is its acknowledgement (DESIGN 19)."""
