"""What a journal is configured to hold: the keys of definition files, and the checked definitions made of them."""
