"""The configuration of a journal: the keys of definition files, and the checked definitions made of them."""
