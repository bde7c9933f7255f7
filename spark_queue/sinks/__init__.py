"""Tables outside of a journal that take each batch of a queue in one commit, which is its acknowledgement (DESIGN 19)."""
