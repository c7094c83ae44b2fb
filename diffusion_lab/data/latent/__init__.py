"""Latents of an autoencoder: the autoencoder, the encoding of a data set, its files, and the source that reads them."""
