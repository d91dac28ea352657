"""A stored study, as Python, figures, a report and a project read it."""
