"""Which rows of which message files are which messages, and where the rows went since."""
