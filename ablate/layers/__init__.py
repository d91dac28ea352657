"""The new layers as plain torch modules, free of everything else in the project."""
