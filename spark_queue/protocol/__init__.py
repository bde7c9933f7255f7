"""The meeting of callers and a coordinator: its messages, their transport, and the files by which both find each other."""
