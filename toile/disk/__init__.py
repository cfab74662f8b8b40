"""What is kept on disk: objects, plans, and which files are trusted."""
