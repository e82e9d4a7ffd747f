"""
Data layouts inside files, independent of the writer: archives, pickles, trees of keys, arrays. Nothing here knows
steps or checkpoint formats. Each module reads its input within limits and builds no objects from it.
"""
