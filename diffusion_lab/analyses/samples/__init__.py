"""Images that models estimate and generate."""
