"""Reads pickles as data, within limits. It builds no objects and calls no functions, whatever a pickle asks for."""
