"""
How bytes are laid out in files, whoever wrote them: archives, pickles, trees of keys, arrays. Nothing here knows of
steps or formats of checkpoints; each module reads what it is given within bounds, and builds nothing of it.
"""
