"""Gradients of single rows and of batches."""
