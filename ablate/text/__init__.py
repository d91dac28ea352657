"""How text is read, escaped, masked and advised."""
