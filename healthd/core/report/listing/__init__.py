"""Lists for people and programs: the gangs and the recoveries of a cluster or of a run, one row each."""
