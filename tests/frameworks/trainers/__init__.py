"""
Training scripts as their frameworks' manuals show them, which know of healthd only HEALTHD_RESUME_FROM.

Each trains one linear layer on two ranks for `EPOCHS` epochs of `BATCHES` steps, saves at the end of each into the
folder that is its argument, and leaves its weights in `weights.pt` beside it.
"""
