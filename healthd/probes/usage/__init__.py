"""
What one member of a gang uses: processor, memory, files, network, and the states of its processes. Nothing is asked of
the member itself.
"""
