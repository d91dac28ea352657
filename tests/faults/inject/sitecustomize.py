"""Runs at the start of every Python process of a disturbed run: its folder stands first on the PYTHONPATH.

Ray's workers inherit the PYTHONPATH of the driver. A plain program that finds this folder by accident sees neither variable
and stays as it is.
"""

import ablate_test_clock
import ablate_test_phases

ablate_test_clock.install()
ablate_test_phases.install()
