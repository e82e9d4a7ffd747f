"""What trainers write around the files of a model: their folders, their state, one file per rank."""
