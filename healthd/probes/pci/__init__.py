"""PCI Express: `pcie` reads links, errors and settings from /sys; `config_space` parses what a port allows."""
