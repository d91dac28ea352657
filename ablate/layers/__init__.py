"""The new layers as plain torch modules, independent of the rest of the project."""
