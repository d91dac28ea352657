"""Runs at the start of every Python process of a disturbed run.

Its folder stands first on the PYTHONPATH, which Ray's workers inherit from the driver.
A program that finds this folder by accident sees neither variable and stays as it is.
"""

import ablate_test_clock
import ablate_test_phases

ablate_test_clock.install()
ablate_test_phases.install()
