"""What users register by name, and how their files and the built-in parts are found."""
