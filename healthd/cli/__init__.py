"""The composition root: builds everything and passes it down. Commands import what they need when they run."""
