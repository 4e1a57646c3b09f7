"""Pages for people: one HTML file each, with everything in it."""
