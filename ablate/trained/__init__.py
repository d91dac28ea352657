"""What can be done with trained trials: measure, repeat, delete their files."""
