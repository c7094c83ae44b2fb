"""The loss around and between weights, and their updates."""
