"""Sets of bookmarks, and what is known of each message in them, at a cost that follows ranges and distinct values."""
