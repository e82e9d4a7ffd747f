"""Tables that decisions stand on, with the source of every row. They are read at first use."""
