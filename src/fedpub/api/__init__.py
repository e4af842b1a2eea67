"""What a program or a notebook calls, and what it gets back."""
