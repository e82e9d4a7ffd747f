"""Steps that are whole by what their user declared, or by a manifest of their writer."""
