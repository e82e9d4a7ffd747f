"""
Run by hand where the frameworks are installed: their writers make fixtures and are interrupted, their loaders are
compared with healthd.
"""
