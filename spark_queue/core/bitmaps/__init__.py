"""Sets of bookmarks, and values of each message in them, at a cost that follows ranges and distinct values."""
