"""Data sets, a file each, and what only they need: downloads, file formats, the scan of a folder."""
