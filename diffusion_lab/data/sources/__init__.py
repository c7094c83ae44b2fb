"""Data sets, one file each, and their helpers: downloads, file formats, the scan of a folder."""
