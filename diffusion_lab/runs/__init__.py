"""The run folder: its names, and how its files are written, cut back, locked, found and read. Imports no torch."""
