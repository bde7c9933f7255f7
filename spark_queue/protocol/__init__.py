"""How callers and a coordinator meet: what travels, how it is sent, and the files by which they find each other."""
