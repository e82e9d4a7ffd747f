"""Whole recoveries of the kinds that are described by data: healthd as it is shipped, beside their real controllers."""
