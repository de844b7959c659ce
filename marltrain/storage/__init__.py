"""Files on disk: atomic writing, strict reading, checksums, manifests and the saved state of objects."""
